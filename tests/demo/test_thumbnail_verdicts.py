"""The judgement of the thumbnails' demo: it accepts what should happen, and each of its conditions can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from demo.thumbnails import verdicts
from demo.thumbnails.plan import CASES, KINDS, total
from demo.thumbnails.verdicts import ATTEMPTS, Evidence, Site

SIZES = {"desktop": (1440, 900), "mobile": (390, 844)}


def good() -> Evidence:
    named = [(kind, case) for kind in KINDS for case in CASES for _ in range(case.sites)]
    sites = [_as_it_should_be(Site(kind, n, case.name, case.fate, False)) for n, (kind, case) in enumerate(named)]
    visits = [("new-1", ""), ("new-1", "visited=new-1"), ("new-2", "")]
    reset = {"agency_websites": 3, "instasites": 3}
    return Evidence(sites, SIZES, reset, visits, [("agency_website", 1)], 4, [])


def _as_it_should_be(site: Site) -> Site:
    match site.fate:
        case "rendered":
            return replace(site, changed=True, sizes=SIZES, digest=str(site.id), task="completed", attempts=1)
        case "failed":
            return replace(site, changed=True, in_progress=True, task="failed", attempts=ATTEMPTS)
        case _:
            return site


def with_site(fate: str, **changes: Any) -> Callable[[Evidence], Evidence]:
    def changed(evidence: Evidence) -> Evidence:
        sites = list(evidence.sites)
        place = next(n for n, site in enumerate(sites) if site.fate == fate)
        sites[place] = replace(sites[place], **changes)
        return replace(evidence, sites=sites)

    return changed


def failing(evidence: Evidence) -> set[str]:
    conditions = (
        verdicts.all_rendered, verdicts.each_its_own, verdicts.stuck_were_reset, verdicts.others_left_alone,
        verdicts.broken_wait, verdicts.contexts_apart, verdicts.killed_was_repeated,
        verdicts.old_are_removed,
    )  # fmt: skip
    assert [c(evidence) for c in conditions] == verdicts.verdicts(evidence)
    return {condition.__name__ for condition in conditions if not condition(evidence).holds}


def test_what_should_happen_is_accepted() -> None:
    assert failing(good()) == set()
    assert total("rendered") == sum(site.fate == "rendered" for site in good().sites)


@pytest.mark.parametrize(
    ("condition", "change"),
    [
        ("all_rendered", with_site("rendered", sizes={"desktop": (1440, 900)})),
        ("all_rendered", with_site("rendered", in_progress=True)),
        ("each_its_own", with_site("rendered", digest="1")),
        ("stuck_were_reset", lambda e: replace(e, reset={"agency_websites": 3, "instasites": 2})),
        ("stuck_were_reset", lambda e: replace(e, reset={})),
        ("others_left_alone", with_site("left alone", changed=True)),
        ("others_left_alone", with_site("left alone", task="pending")),
        ("broken_wait", with_site("failed", in_progress=False)),
        ("broken_wait", with_site("failed", attempts=1)),
        ("contexts_apart", lambda e: replace(e, visits=[*e.visits, ("new-2", "visited=new-1")])),
        ("old_are_removed", lambda e: replace(e, unseen=["file:///thumbnails/instasite/7/desktop-0.png"])),
        ("old_are_removed", lambda e: replace(e, old=0)),
        ("killed_was_repeated", lambda e: replace(e, killed=[])),
        ("killed_was_repeated", lambda e: replace(e, killed=[("agency_website", 999)])),
    ],
)
def test_each_condition_can_fail_alone(condition: str, change: Callable[[Evidence], Evidence]) -> None:
    assert failing(change(good())) == {condition}


def test_no_sites_at_all_is_no_success() -> None:
    empty = replace(good(), sites=[], visits=[])
    assert {"all_rendered", "each_its_own", "others_left_alone", "broken_wait", "contexts_apart"} <= failing(empty)
