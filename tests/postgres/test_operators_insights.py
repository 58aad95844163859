"""What operators see: failures that are the same as one, who gets less than a fair share, who holds which lock."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module

import pytest

from celeriac import insights
from celeriac.enqueue.rows import Receipt
from celeriac.errors import BadValue, Unknown
from celeriac.insights import AccountShare, Count, Failures, Lock, failures
from celeriac.insights.tasks.lists import Matching
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.postgres.passes import Waiting
from tests.processes import Rows

Put = Callable[..., Receipt]

FAILED = """INSERT INTO worker_tasks (task_id, role, account, status, completed_at, error_message, result)
    SELECT gen_random_uuid(), :role, 'a' || n % 12, 'failed', now() - n * :apart * interval '1 minute',
        :says || n, CAST(:result AS jsonb)
    FROM generate_series(1, :n) n"""


def fail(rows: Rows, n: int, says: str, *, role: str = "work", apart: float = 1.0, result: str | None = None) -> None:
    rows(FAILED, n=n, says=says, role=role, apart=apart, result=result)


def seen(database: Database, **asked: object) -> Failures:
    with database.reading() as connection:
        return failures(connection, **asked)  # type: ignore[arg-type]


def test_failures_that_are_the_same_are_one_group(database: Database, rows: Rows) -> None:
    fail(rows, 90, "HTTPError: status ")
    fail(rows, 2, "HTTPError: status ", role="other")
    fail(rows, 3, "its worker fell silent ")
    found = seen(database)
    assert [(group.role, group.type, group.pattern, group.count) for group in found.groups] == [
        ("work", "HTTPError", "HTTPError: status #", 90),
        ("work", None, "its worker fell silent #", 3),
        ("other", "HTTPError", "HTTPError: status #", 2),
    ]
    first = found.groups[0]
    assert (first.last_hour, first.accounts_in_all, len(first.accounts), len(first.tasks)) == (59, 12, 10, 5)
    assert first.message == "HTTPError: status 90", "the newest by id"
    assert (first.last_seen - first.first_seen).total_seconds() == 89 * 60
    assert (found.groups_in_all, found.looked_at, found.reached_end) == (3, 95, True)


def test_a_group_tells_when_its_failures_were(database: Database, rows: Rows) -> None:
    fail(rows, 24, "HTTPError: status ", apart=59.0)
    fail(rows, 1, "ValueError: ", role="other", apart=1.0)
    day = seen(database, since=86_400.0)
    assert [group.trend for group in day.groups] == [[1] * 24, [0] * 23 + [1]]
    found = seen(database)
    assert [sum(group.trend) for group in found.groups] == [24, 1]
    assert (found.groups[0].trend[0], found.groups[1].trend[-1]) == (2, 1)
    assert found.begin == found.groups[0].first_seen
    assert seen(database, role="none").begin is None


def test_they_are_asked_for_by_role_and_time(database: Database, rows: Rows) -> None:
    fail(rows, 10, "ValueError: ", apart=60.0)
    fail(rows, 2, "ValueError: ", role="other")
    assert [group.count for group in seen(database, role="work").groups] == [10]
    assert [(g.role, g.count) for g in seen(database, since=3.5 * 3600).groups] == [("work", 3), ("other", 2)]
    assert seen(database, role="none").groups == []
    assert len(seen(database, limit=1).groups) == 1
    for wrong in ({"limit": 0}, {"since": -1.0}, {"since": float("nan")}):
        with pytest.raises(BadValue):
            seen(database, **wrong)


def test_the_traceback_tells_apart_what_says_the_same(database: Database, rows: Rows) -> None:
    for function in ("fetch", "store"):
        told = '{"traceback": "  File \\"/srv/shop/x.py\\", line 3, in %s\\n    f()\\n"}'
        fail(rows, 1, "KeyError: ", result=told % function)
    for _ in range(2):
        assert {(group.type, group.frame) for group in seen(database).groups} == {
            ("KeyError", "x.py:fetch"), ("KeyError", "x.py:store"),
        }  # fmt: skip


def test_who_asks_again_reads_only_what_failed_since(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("celeriac.insights.failures.fingerprints")
    asked: list[str] = []
    kind_of = module.kind_of
    monkeypatch.setattr(module, "kind_of", lambda role, *given: asked.append(role) or kind_of(role, *given))
    fail(rows, 3, "KeyError: ")
    fail(rows, 2, "KeyError: ", role="other")
    assert [seen(database).looked_at, len(asked)] == [5, 5]
    fail(rows, 1, "KeyError: ", role="third")
    assert [seen(database).looked_at, asked[5:]] == [6, ["third"]]
    monkeypatch.setattr(module, "KEPT", 2)
    assert [seen(database).looked_at, len(module._known)] == [6, 2]
    assert sum(group.count for group in seen(database).groups) == 6


def test_beyond_what_is_looked_at_it_says_so_and_a_group_is_whole(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("celeriac.insights.failures.failures")
    page, looked_in = module._page, list[str | None]()
    monkeypatch.setattr(module, "_page", lambda c, role, *rest: looked_in.append(role) or page(c, role, *rest))
    monkeypatch.setattr(module, "LOOKS_AT", 10)
    fail(rows, 25, "ValueError: ")
    fail(rows, 5, "KeyError: ", role="other")
    found = seen(database)
    assert (found.looked_at, found.reached_end) == (10, False)
    groups = {group.role: group for group in found.groups}
    assert (groups["work"].count, groups["other"].count) == (5, 5)
    with database.reading() as connection:
        looked_in.clear()
        ids = insights.failed_of(connection, groups["work"].fingerprint)
        assert looked_in == [None, "work", "work", "work"], "a group has one role"
        assert insights.failing(connection, groups["work"].fingerprint, most=3) == Matching(ids[:3])
        assert insights.failing(connection, groups["work"].fingerprint, most=30) == Matching(ids)
        monkeypatch.setattr(module, "PAGES", 1)
        assert insights.failing(connection, groups["work"].fingerprint, most=30).gave_up
        with pytest.raises(Unknown, match="there are no failures 'none'"):
            insights.failed_of(connection, "none")
    assert ids == [i for (i,) in rows("SELECT id FROM worker_tasks WHERE role = 'work' ORDER BY id DESC")]


def shares(database: Database, role: str | None = None, **asked: int) -> dict[str, AccountShare]:
    with database.reading() as connection:
        return {share.account: share for share in insights.shares(connection, role, **asked).accounts}


def test_each_account_is_told_beside_its_fair_share(database: Database, rows: Rows, waiting: Waiting) -> None:
    rows("INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{\"window\": 10}')")
    rows("INSERT INTO celeriac.account_policies (account, weight, cap) VALUES ('b', 3, NULL), ('c', 1, 1)")
    waiting(a=30, b=30, c=5)
    stages.claimed(database, "work", 6, "a")
    found = shares(database, "work")
    assert {name: (s.waiting.n, s.held, round(s.fair, 2)) for name, s in found.items()} == {
        "b": (30, 0, 6.75), "c": (5, 0, 1.0), "a": (24, 6, 2.25),
    }  # fmt: skip
    assert list(found) == ["b", "c", "a"], "who lacks most first"
    assert (found["a"].held_share, round(found["b"].fair_share, 3), found["b"].weight, found["c"].cap) == (
        1,
        0.675,
        3,
        1,
    )
    assert found["b"].oldest_due == rows.one("SELECT min(scheduled_for) FROM worker_tasks WHERE account = 'b'")


def test_over_all_roles_an_account_is_told_once(database: Database, put: Put) -> None:
    for role in ("one", "two"):
        for account in ("a", "b", "b"):
            put(role, account=account)
    found = shares(database)
    assert {name: (s.role, s.waiting) for name, s in found.items()} == {"a": (None, Count(2)), "b": (None, Count(4))}
    assert {name: s.waiting.n for name, s in shares(database, "two").items()} == {"a": 1, "b": 2}
    assert shares(database, "none") == {}


def test_what_is_parked_is_told_and_asks_for_nothing(database: Database, rows: Rows, put: Put) -> None:
    rows("INSERT INTO celeriac.account_policies (account, paused) VALUES ('shut', true), ('idle', true)")
    task = put(account="shut")
    rows("UPDATE worker_tasks SET waits_for = 'account' WHERE id = :i", i=task.id)
    put(account="open")
    found = shares(database)
    assert {name: (s.parked.n, s.paused, s.fair) for name, s in found.items()} == {
        "shut": (1, True, 0.0), "open": (0, False, 0.0),
    }  # fmt: skip


def test_more_accounts_than_are_looked_at_are_not_told_as_all(
    database: Database, waiting: Waiting, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("celeriac.insights.fairness.shares"), "ACCOUNTS", 2)
    monkeypatch.setattr(import_module("celeriac.insights.fairness.shares"), "CAP", 2)
    waiting(a=3, b=1, c=1, d=1)
    put("zebra", account="z")
    with database.reading() as connection:
        found = insights.shares(connection)
        assert insights.shares(connection, "zebra").is_all
    assert not found.is_all
    assert {share.account for share in found.accounts} >= {"a", "b", "z"}, "of each role so many"
    assert {share.account: share.waiting for share in found.accounts}["a"] == Count(2, exact=False)


def lock_of(database: Database, key: str) -> Lock:
    with database.reading() as connection:
        return insights.lock(connection, key)


def test_who_holds_a_lock_and_who_waits_behind_in_order(database: Database, rows: Rows, put: Put) -> None:
    (holder,) = stages.running(database, new_task(lock_key="k"))
    rows("UPDATE celeriac.tickets SET started_at = now() - interval '1 hour', heartbeat_at = now() - interval '11 min'")
    low, high = put(lock_key="k"), put(lock_key="k", priority=5)
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '2 hours' WHERE id = :i", i=low.id)
    stages.running(database, new_task("other", lock_key="alone"))
    put("third", lock_key="not claimed")
    with database.reading() as connection:
        found = insights.locks(connection)
        queue = insights.queue_of(connection, "k")
    assert [(lock.lock_key, lock.status, lock.waiting.n) for lock in found.locks] == [
        ("k", "running", 2),
        ("alone", "running", 0),
    ]
    first = found.locks[0]
    assert (first.task, first.worker_id, first.is_stale) == (holder.id, stages.WORKER, True)
    assert first.held_seconds == pytest.approx(3600, abs=60)
    assert first.oldest_wait_seconds == pytest.approx(7200, abs=60)
    assert [(one.place, one.id) for one in queue] == [(1, high.id), (2, low.id)]
    assert found.is_all
    assert lock_of(database, "not claimed").status == "pending"


def test_a_key_that_nobody_has_is_told_as_free(database: Database, rows: Rows, put: Put) -> None:
    put(lock_key="k")
    behind = put(lock_key="k")
    rows("DELETE FROM worker_tasks WHERE id = (SELECT head FROM celeriac.locks)")
    free = lock_of(database, "k")
    assert (free.task, free.status, free.waiting) == (None, None, Count(1))
    assert lock_of(database, "never").waiting == Count(0)
    with database.reading() as connection:
        assert [one.id for one in insights.queue_of(connection, "k")] == [behind.id]
        assert not insights.locks(connection, limit=1).locks[0].is_stale


def test_of_many_keys_a_bounded_number_is_told(database: Database, put: Put) -> None:
    for key in ("a", "a", "b", "b", "c", "c"):
        put(lock_key=key)
    with database.reading() as connection:
        found = insights.locks(connection, limit=2)
        assert (len(found.locks), found.is_all) == (2, False)
        with pytest.raises(BadValue):
            insights.locks(connection, limit=0)


def test_passes_of_all_roles_say_whom_their_cap_held_back(database: Database, rows: Rows) -> None:
    claimants = [
        {"account": "full", "waiting": 3, "holding": 2, "cap": 2},
        {"account": "fills", "waiting": 3, "holding": 1, "cap": 2},
        {"account": "content", "waiting": 1, "holding": 1, "cap": 2},
        {"account": "free", "waiting": 9},
    ]
    for role in ("a", "b"):
        rows(
            """INSERT INTO passes (role, by, free, claimants, given)
            VALUES (:role, 'beat', 3, CAST(:claimants AS jsonb), '{"fills": 1, "content": 1, "free": 1}')""",
            role=role, claimants=json.dumps(claimants),
        )  # fmt: skip
    with database.reading() as connection:
        found = insights.passes(connection)
        assert [(row["role"], row["capped"]) for row in found] == [("b", 2), ("a", 2)]
        assert [row["role"] for row in insights.passes(connection, before=found[0]["id"])] == ["a"]
        assert [row["role"] for row in insights.passes(connection, "b")] == ["b"]
