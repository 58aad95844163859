"""The judgement of the subreddits' demo: it accepts what should happen, and each of its conditions can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from demo.subreddits import NEW, PROCESSES, SUBREDDITS, WAITING, verdicts
from demo.subreddits.evidence import summary, visits
from demo.subreddits.verdicts import Crawl, Deleted, Evidence, Stored, Visiting, Wish
from sandbox.reddit import Visit

NAMES = [name.lower() for name in SUBREDDITS]
WISHED = [name.lower() for name in (*WAITING, *NEW)]
THINGS = {f"{kind}_{name}": f"{name}_author" for name in NAMES for kind in ("t3", "t1")}
LIMIT = {"requests": 60, "seconds": 6.0, "most": 50, "refused": 0, "windows": 3}


def good() -> Evidence:
    """Six in the background at 1 s, what users asked for at 10 s, the rest at 20 s."""
    begins = {name: 10.0 if name in WISHED else 1.0 if n < 6 else 20.0 for n, name in enumerate(NAMES)}
    return Evidence(
        names=NAMES,
        crawls=[Crawl(name, "completed") for name in NAMES],
        stored=Stored(THINGS, set(THINGS), THINGS),
        deleted=Deleted(1, 1),
        visits=[Visiting(name, 1, at, at + 1) for name, at in begins.items()],
        wishes=[Wish(name, 5.0) for name in WISHED],
        at_once=PROCESSES,
        limit=LIMIT,
    )


def failing(evidence: Evidence) -> set[str]:
    conditions = (
        verdicts.each_crawled_once, verdicts.all_stored, verdicts.users_first, verdicts.none_overlapped,
        verdicts.limit_kept, verdicts.deleted_is_left_alone,
    )  # fmt: skip
    assert [c(evidence) for c in conditions] == verdicts.verdicts(evidence)
    return {condition.__name__ for condition in conditions if not condition(evidence).holds}


def test_a_good_run_is_accepted_and_summed_up() -> None:
    assert failing(good()) == set()
    assert "3 windows of 60 requests" in summary(good())
    assert f"{len(NAMES)} posts and {len(NAMES)} comments" in summary(good())


@pytest.mark.parametrize(
    "crawls",
    [
        [Crawl(name, "completed") for name in NAMES[1:]],
        [Crawl(name, "completed") for name in [*NAMES, NAMES[0]]],
        [*(Crawl(name, "completed") for name in NAMES[1:]), Crawl(NAMES[0], "failed")],
        [*(Crawl(name, "completed") for name in NAMES), Crawl(NAMES[0], "pending")],
    ],
    ids=["missing", "twice", "failed", "unfinished"],
)
def test_each_is_crawled_once(crawls: list[Crawl]) -> None:
    assert failing(replace(good(), crawls=crawls)) == {"each_crawled_once"}


@pytest.mark.parametrize("part", ["things", "served", "told"])
def test_what_is_stored_is_what_was_served_and_what_there_is(part: str) -> None:
    stored = good().stored
    less: object = set(list(THINGS)[1:]) if part == "served" else dict(list(THINGS.items())[1:])
    assert failing(replace(good(), stored=replace(stored, **{part: less}))) == {"all_stored"}


def test_a_wrong_author_is_not_what_was_served() -> None:
    stored = replace(good().stored, things=THINGS | {"t1_wanted_0": "somebody"})
    assert failing(replace(good(), stored=stored)) == {"all_stored"}


def test_users_begin_after_no_more_than_was_claimed() -> None:
    def at(begins: dict[str, float]) -> Evidence:
        return replace(good(), visits=[replace(v, began=begins.get(v.subreddit, v.began)) for v in good().visits])

    claimed = dict.fromkeys(NAMES[6 : 6 + PROCESSES], 6.0)
    assert failing(at(claimed)) == set()
    assert failing(at(claimed | {NAMES[20]: 6.0})) == {"users_first"}
    assert failing(at({name: 0.0 for name in NAMES if name not in WISHED})) == {"users_first"}
    assert failing(replace(good(), wishes=[])) == {"users_first"}


def test_a_user_s_crawl_that_a_fault_ended_before_reddit_saw_it_has_had_its_turn() -> None:
    late = [replace(v, began=30.0) if v.subreddit == WISHED[0] else v for v in good().visits]
    assert failing(replace(good(), visits=late)) == {"users_first"}
    put_off = [replace(c, retries=1, put_off=10.5) if c.subreddit == WISHED[0] else c for c in good().crawls]
    assert failing(replace(good(), visits=late, crawls=put_off)) == set()


def test_no_subreddit_is_crawled_twice_at_once() -> None:
    (first, *_) = good().visits
    later, while_it_runs = replace(first, token=2, began=3.0, ended=4.0), replace(first, token=2, began=1.5)
    assert failing(replace(good(), visits=[*good().visits, later])) == set()
    assert failing(replace(good(), visits=[*good().visits, while_it_runs])) == {"none_overlapped"}
    assert "none_overlapped" in failing(replace(good(), visits=good().visits[1:]))


@pytest.mark.parametrize("what", [{"refused": 1}, {"windows": 1}])
def test_the_limit_is_kept_and_was_one(what: dict[str, float]) -> None:
    assert failing(replace(good(), limit=LIMIT | what)) == {"limit_kept"}


@pytest.mark.parametrize("went", [Deleted(0, 1), Deleted(1, 0), Deleted(2, 1)])
def test_a_subreddit_that_is_deleted_is_not_crawled(went: Deleted) -> None:
    assert failing(replace(good(), deleted=went)) == {"deleted_is_left_alone"}


def test_a_crawl_is_one_processs_requests_from_about_to_the_next() -> None:
    asked = [
        Visit(1.0, 1, "a", "about"), Visit(2.0, 1, "a", "new"), Visit(2.5, 2, "a", "about"),
        Visit(2.6, 1, "b", "about"),
        Visit(3.0, 1, "a", "hot"), Visit(9.0, 1, "a", "about"),
    ]  # fmt: skip
    assert list(visits(asked)) == [
        Visiting("a", 1, 1.0, 3.0), Visiting("a", 1, 9.0, 9.0), Visiting("a", 2, 2.5, 2.5), Visiting("b", 1, 2.6, 2.6)
    ]  # fmt: skip
