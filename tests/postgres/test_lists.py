"""What the surfaces read: lists page by page, and what is meant by their filter and by a bulk's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from celeriac import insights
from celeriac.enqueue.rows import Receipt
from celeriac.errors import BadValue
from celeriac.insights import Count, Filter
from celeriac.insights.tasks import lists
from celeriac.store import states
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, registered
from tests.postgres.stages import running
from tests.processes import Rows

Put = Callable[..., Receipt]


def walk(ask: Callable[..., Any], wanted: Filter, limit: int) -> list[dict[str, Any]]:
    found, after = [], None
    while True:
        page = ask(insights.list_tasks, wanted, limit=limit, after=after)
        assert len(page.items) <= limit
        found += page.items
        if page.next is None:
            return found
        after = page.next


@pytest.mark.parametrize("looks_at", [1, 7, 2000])
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_pages_meet_every_task_the_filter_means_once(
    ask: Callable[..., Any], rows: Rows, mixed: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch,
    limit: int, looks_at: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(lists, "LOOKS_AT", looks_at)
    for statuses in (None, ("pending",), ("claimed", "running"), ("running",), ("failed",), ("failed", "cancelled")):
        for role in (None, "role-1", "nonesuch"):
            for account in (None, "account-0"):
                found = walk(ask, Filter(statuses=statuses, role=role, account=account), limit)
                meant = rows(
                    """SELECT id FROM worker_tasks WHERE status = ANY(:s) AND coalesce(:r, role) = role
                    AND coalesce(:a, account) = account ORDER BY id DESC""",
                    s=list(statuses or states.ALL), r=role, a=account,
                )  # fmt: skip
                assert [(item["id"],) for item in found] == meant


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_what_is_completed_comes_by_the_time_of_its_completion(
    ask: Callable[..., Any], rows: Rows, mixed: dict[str, list[int]], limit: int
) -> None:
    for role in (None, "role-1"):
        found = walk(ask, Filter(statuses=("completed",), role=role), limit)
        meant = """SELECT id FROM worker_tasks WHERE status = 'completed' AND coalesce(:r, role) = role
            ORDER BY completed_at DESC, id DESC"""
        assert [(item["id"],) for item in found] == rows(meant, r=role)
    last = rows("""SELECT id FROM worker_tasks WHERE status = 'completed' AND role = 'role-1'
        ORDER BY completed_at DESC LIMIT 1""")
    assert ask(insights.last_completion, "role-1")["id"] == last[0][0]
    assert ask(insights.last_completion, "nonesuch") is None


def test_an_offset_skips_and_is_bounded(ask: Callable[..., Any], mixed: dict[str, list[int]]) -> None:
    page = ask(insights.list_tasks, Filter(statuses=("failed",)), limit=3, offset=4)
    assert [item["id"] for item in page.items] == mixed["failed"][4:7]
    for bad in ({"offset": 10_001}, {"limit": 0}, {"limit": 1001}, {"after": "x"}, {"after": "2026-01-01T00:00:00Z 1"}):
        with pytest.raises(BadValue, match="give"):
            ask(insights.list_tasks, Filter(), **bad)
    for bad_filter, says in (({"statuses": ("gone",)}, "status='gone'"), ({"older_than": math.nan}, "older_than=nan")):
        with pytest.raises(BadValue, match=says):
            ask(insights.list_tasks, Filter(**bad_filter))
    with pytest.raises(BadValue, match="most=-1"):
        ask(insights.matching, Filter(), most=-1)


TICKS = ("nightly@2031-01-01T00:00:00Z", "nightly@2031-01-01T00:00:00.5Z")
OTHERS = ("nightly2@2031-01-01T00:00:00Z", "nightly@x@2031-01-01T00:00:00Z", "nightly@by hand", "nightly", "x")


def test_lists_and_bulks_are_narrowed_by_priority_and_by_whose_ticks_made_them(
    ask: Callable[..., Any], rows: Rows, put: Put
) -> None:
    ids = {name: put(priority=n).id for n, name in enumerate((*OTHERS, *TICKS))}
    for name, task in ids.items():  # as its schedule would have called it
        rows("UPDATE celeriac.tasks SET task_id = :name WHERE id = :task", name=name, task=task)
    for told, meant in (
        ({"schedule": "nightly"}, (6, 5)), ({"schedule": "nightly2"}, (0,)), ({"schedule": "nightly@x"}, (1,)),
        ({"schedule": "night"}, ()), ({"priority": "5.."}, (6, 5)), ({"priority": "..1"}, (1, 0)),
        ({"priority": "2..4"}, (4, 3, 2)), ({"priority": "3"}, (3,)),
        ({"priority": "..5", "schedule": "nightly"}, (5,)),
    ):  # fmt: skip
        names = [(*OTHERS, *TICKS)[n] for n in meant]
        page = ask(insights.list_tasks, Filter(**told))
        assert [item["task_id"] for item in page.items] == names, told
        assert ask(insights.matching, Filter(statuses=["pending"], **told), most=9).ids == [ids[n] for n in names]
    with pytest.raises(BadValue, match="priority='high'"):
        ask(insights.list_tasks, Filter(priority="high"))


def test_what_is_pending_is_counted_by_what_it_waits_for_as_lists_mean_it(
    database: Database, rows: Rows, ask: Callable[..., Any], put: Put
) -> None:
    rows(
        """INSERT INTO worker_tasks (task_id, role, account, lock_key, waits_for, scheduled_for, headers)
        SELECT gen_random_uuid(), 'role-' || i % 2, 'a', CASE WHEN w = 'lock' THEN 'k' END, w,
            now() + CASE WHEN w = 'time' THEN interval '1 h' ELSE interval '0' END,
            CASE WHEN w = 'members' THEN jsonb_build_object('canvas', jsonb_build_object('awaits', gen_random_uuid()))
            END
        FROM unnest(CAST(:waits AS text[])) WITH ORDINALITY AS waits (w, n), LATERAL generate_series(1, 2 + n) i""",
        waits=[None, "time", "lock", "account", "members"],
    )
    for role in (None, "role-0", "role-1", "nonesuch"):
        counted = ask(insights.waiting, role)
        assert list(counted) == ["nothing", "time", "lock", "account", "members"]
        for reason, count in counted.items():
            listed = walk(ask, Filter(statuses=("pending",), role=role, waits_for=reason), 100)
            assert count == Count(len(listed)), (role, reason)
    assert ask(insights.waiting, cap=3)["lock"] == Count(3, exact=False)
    assert sum(count.n for count in ask(insights.waiting).values()) == 25


def test_a_word_nobody_uses_means_nothing_rather_than_everything() -> None:
    assert Filter.of(["queued", "claimed"]).statuses == ("pending", "claimed")
    assert (Filter.of([]).statuses, Filter.of(["delayed"]).waits_for) == (None, "time")
    with pytest.raises(BadValue, match="status='done'"):
        Filter.of(["queued", "done"])


def test_what_is_stale_runs_unheard_for_as_long_as_its_role_allows(
    database: Database, rows: Rows, ask: Callable[..., Any]
) -> None:
    registered(rows, "quick", stale_after=60)
    roles = ("quick", "quick", "work")
    heard, silent, patient = (task for role in roles for task in running(database, new_task(role=role)))
    rows("""UPDATE worker_tasks SET last_heartbeat_at = now() - interval '5 minutes'
        WHERE id IN (:silent, :patient)""", silent=silent.id, patient=patient.id)  # fmt: skip
    finished(rows, status="failed")

    def listed(*words: str) -> list[int]:
        return [task["id"] for task in ask(insights.list_tasks, Filter.of(words)).items]

    assert listed("stale") == [silent.id]
    assert ask(insights.matching, Filter.of(["stale"]), most=10).ids == [silent.id]
    assert listed("stale", "failed")[1:] == [silent.id]
    assert listed("stale", "running") == listed("crawling", "stale") == [patient.id, silent.id, heard.id]


def test_a_bulk_means_the_tasks_its_filter_meets(
    ask: Callable[..., Any], rows: Rows, mixed: dict[str, list[int]]
) -> None:
    wanted = Filter(statuses=("failed", "cancelled"), account="account-0")
    meant = rows("SELECT id FROM worker_tasks WHERE status IN ('failed', 'cancelled') AND account = 'account-0'")
    found = ask(insights.matching, wanted, most=1000).ids
    assert sorted(found) == sorted(task for (task,) in meant) != []
    assert ask(insights.matching, wanted, most=2).ids == found[:2]


@pytest.mark.parametrize("statuses", [[*states.ALL], ["failed"], ["failed", "cancelled"]])
def test_statuses_may_come_as_a_list_as_they_do_from_json(
    ask: Callable[..., Any], mixed: dict[str, list[int]], statuses: list[str]
) -> None:
    found = ask(insights.matching, Filter(statuses=statuses), most=1000).ids
    assert sorted(found) == sorted(task for status in statuses for task in mixed[status])


def test_a_bulk_that_few_tasks_match_looks_so_far_and_says_that_it_looked_no_further(
    ask: Callable[..., Any], rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LOOKS_AT", 20)
    monkeypatch.setattr(lists, "VAIN", 3)
    rows("""INSERT INTO worker_tasks (task_id, role, status, completed_at, error_message)
        SELECT 'failed ' || i, 'work', 'failed', now(), CASE WHEN i IN (1, 195) THEN 'rare' ELSE 'usual' END
        FROM generate_series(1, 200) i""")
    pages = []
    page = insights.matching_page
    monkeypatch.setattr(lists, "matching_page", lambda *a, **o: pages.append(page(*a, **o)) or pages[-1])
    rare = Filter(statuses=("failed",), error="rare")
    found = ask(insights.matching, rare, most=5)
    assert (len(found.ids), found.gave_up, len(pages)) == (1, True, 3)
    everywhere = ask(insights.matching, rare, most=100_000)
    assert (len(everywhere.ids), everywhere.gave_up) == (2, False)
    assert not ask(insights.matching, Filter(statuses=("failed",)), most=5).gave_up


def test_a_bulk_of_what_is_unfinished_never_reads_what_is_over(
    ask: Callable[..., Any], rows: Rows, mixed: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows("""INSERT INTO worker_tasks (task_id, role, account, status, completed_at)
        SELECT 'done ' || i, 'role-1', 'account-0', 'completed', now() FROM generate_series(1, 600) i""")
    pages = []
    monkeypatch.setattr(lists, "LOOKS_AT", 20)
    page = insights.matching_page
    monkeypatch.setattr(lists, "matching_page", lambda *a, **o: pages.append(page(*a, **o)) or pages[-1])
    found = ask(insights.matching, Filter(statuses=states.UNFINISHED), most=30).ids
    assert sorted(found) == sorted(task for status in states.UNFINISHED for task in mixed[status])
    assert 0 < len(pages) < 10
