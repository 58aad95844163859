"""What the surfaces read: counts up to a bound, what the system did, one task with its reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celeriac import insights
from celeriac.cli import output
from celeriac.dashboard import words
from celeriac.dispatch.passes import Dispatcher
from celeriac.enqueue.rows import Receipt
from celeriac.errors import BadValue, Unknown
from celeriac.insights import Count
from celeriac.insights.tasks import counting
from celeriac.operate import policies, steer
from celeriac.roles.role import Role
from celeriac.store import states
from celeriac.store.connections import Database
from tests import life
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.processes import Rows

Put = Callable[..., Receipt]


def test_counts_are_exact_up_to_a_bound_and_say_so_beyond_it(
    ask: Callable[..., Any], rows: Rows, mixed: dict[str, list[int]]
) -> None:
    assert ask(insights.counts) == {status: Count(len(mixed[status])) for status in states.ALL}
    rows("""INSERT INTO worker_tasks (task_id, role, status, completed_at)
        SELECT 'done ' || i, 'role-1', 'completed', now() FROM generate_series(1, 90) i""")
    assert ask(insights.counts, cap=30) == {
        **{status: Count(10) for status in states.ALL}, "completed": Count(30, exact=False),
    }  # fmt: skip


def test_what_is_held_is_exact_however_much_it_is(ask: Callable[..., Any], mixed: dict[str, list[int]]) -> None:
    counts = ask(insights.counts, cap=5)
    assert {status for status, count in counts.items() if count.exact} == {"claimed", "running"}
    assert (counts["claimed"], counts["running"]) == (Count(10), Count(10))


def test_depth_tells_each_role_its_own(
    ask: Callable[..., Any], rows: Rows, database: Database, put: Put, dispatcher: Dispatcher
) -> None:
    rows("""INSERT INTO roles (role, definition, paused) VALUES ('idle', '{"queue": "slow", "window": 7}', true)""")
    (running,) = stages.running(database, new_task("busy"))
    put("busy", lock_key="k")
    put("busy", lock_key="k")
    put("busy", delay=60.0)
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '90 s' WHERE lock_key = 'k'")
    for _ in range(2):
        rows("UPDATE worker_tasks SET waits_for = 'account' WHERE id = :id", id=put("busy", account="paused").id)
    busy, idle = ask(insights.depth)
    assert (busy.role, busy.running, busy.stale) == ("busy", 1, 0)
    assert (busy.pending, busy.ready, busy.later, busy.behind, busy.parked) == (
        Count(5), Count(1), Count(1), Count(1), Count(2),
    )  # fmt: skip
    assert 89 < busy.oldest_ready_seconds < 150
    assert (idle.role, idle.queue, idle.window, idle.paused, idle.oldest_ready_seconds) == (
        "idle", "slow", 7, True, None,
    )  # fmt: skip
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 hour' WHERE id = :id", id=running.id)
    assert ask(insights.depth)[0].stale == 1
    bounded = ask(insights.depth, cap=1)[0]
    assert (bounded.pending, bounded.behind, bounded.parked) == (Count(1, False), Count(1), Count(1, False))


def test_a_task_is_found_by_either_id(ask: Callable[..., Any], put: Put) -> None:
    one, other = put(), put(task_id="4712")
    third = put(task_id=str(one.id))
    assert ask(insights.find, one.id)["task_id"] == one.task_id
    assert ask(insights.find, f"id={one.id}")["id"] == one.id
    assert ask(insights.find, f"task_id={one.id}")["id"] == third.id
    with pytest.raises(BadValue, match=f"write id={one.id} or task_id={one.id}"):
        ask(insights.find, str(one.id))
    assert ask(insights.find, str(third.id))["id"] == third.id
    assert ask(insights.find, one.task_id)["id"] == one.id
    assert ask(insights.find, "4712")["id"] == other.id
    for nothing in ("nonesuch", 4711, 2**80, "9" * 5000, "\x00"):
        assert ask(insights.find, nothing) is None


def test_a_history_tells_what_happened_and_why_a_task_waits(
    ask: Callable[..., Any], rows: Rows, database: Database, put: Put, dispatcher: Dispatcher
) -> None:
    rows("INSERT INTO roles (role, definition) VALUES ('work', '{}')")
    first, second, later = put(lock_key="k"), put(lock_key="k"), put(delay=60.0)
    third = put(lock_key="k")
    ready = [put(account="acme", priority=n) for n in (5, 1, 3)]

    def waits(task: Receipt) -> tuple[int | None, str | None]:
        found = ask(insights.history, task.id)
        return found.ahead, found.why

    assert waits(third) == (1, f"task {first.id} (work) is pending and has its lock 'k'")
    assert waits(second)[0] == 0
    assert waits(later)[0] is None
    assert str(waits(later)[1]).startswith("it is not due yet: in ")
    assert [waits(task)[0] for task in ready] == [0, 2, 1]
    with database.transaction() as connection:
        policies.pause_account(connection, "acme", by="ann")
        steer.boost(connection, [ready[0].id], 5, by="ann", why="asked to")
    assert waits(ready[0]) == (0, "its account is paused")
    with database.transaction() as connection:
        policies.pause_role(connection, "work", by="ann")
    assert waits(first) == (0, "its role is paused")
    assert waits(second) == (0, "its role is paused")
    history = ask(insights.history, ready[0].id)
    assert [(e["kind"], e["by"], e["why"]) for e in history.events] == [("priority", "ann", "to 10: asked to")]
    with database.transaction() as connection:
        policies.resume_role(connection, "work", by="ann")
    dispatcher.dispatch(Role(name="work"))
    assert waits(first)[1] == "no worker listens on the queue 'work'"
    assert {"": 1} in [one["given"] for one in ask(insights.passes, "work")]
    with pytest.raises(Unknown, match="no task 4711"):
        ask(insights.history, 4711)


def test_system_reads_come_newest_first_and_bounded(ask: Callable[..., Any], rows: Rows, database: Database) -> None:
    (task,) = stages.running(database, new_task())
    rows("""INSERT INTO workers (worker_id, hostname, pid, concurrency, last_heartbeat_at)
        VALUES (:w, 'host', 1, 2, now() - interval '20 s')""", w=stages.WORKER)  # fmt: skip
    rows("""INSERT INTO scheduled_jobs (name, target, cron_expression, enabled, next_run_at) VALUES
        ('late', 'work', '@hourly', true, now() - interval '5 s'),
        ('off', 'work', '@hourly', false, now() - interval '5 s')""")
    (worker,) = ask(insights.workers)
    assert worker["task_ids"] == [task.id]
    assert 19 < worker["heartbeat_age"] < 80
    late, off = ask(insights.schedules)
    assert late["late_seconds"] >= 5
    assert off["late_seconds"] == 0
    with database.transaction() as connection:
        for weight in (1, 2, 3):
            policies.set_account(connection, "acme", by="ann", weight=weight)
        policies.set_account(connection, "zeta", by="ann", cap=0)
    trail = ask(insights.audit_trail)
    assert [entry["target"] for entry in trail] == ["zeta", "acme", "acme", "acme"]
    of_acme = ask(insights.audit_trail, kind="account", target="acme", limit=2)
    assert [entry["after"]["weight"] for entry in of_acme] == [3, 2]
    assert [e["after"]["weight"] for e in ask(insights.audit_trail, kind="account", target="acme",
        before=of_acme[-1]["id"])] == [1]  # fmt: skip
    assert [policy["account"] for policy in ask(insights.account_policies, after="acme")] == ["zeta"]


def test_the_words_of_other_systems_mean_our_statuses() -> None:
    assert [states.crawl_word(status) for status in states.ALL] == [
        "queued", "queued", "crawling", "success", "failed", "failed",
    ]  # fmt: skip
    assert states.statuses_of("queued") == ("pending", "claimed")
    assert states.statuses_of("failed") == ("failed",)
    assert states.statuses_of("stale") == ("running",)
    assert states.statuses_of("nonesuch") == ()
    assert set(life.NEXT) == set(states.ALL)
    assert counting.CAP >= 1000


def test_a_backlog_that_shrinks_is_seen_to_shrink(ask: Callable[..., Any], rows: Rows) -> None:
    """Also where nobody has analysed the tables, and where finished tasks are many."""

    def pending() -> str:
        count = ask(insights.counts)["pending"]
        assert words.figure(count) == output.count(count).replace(",", "\u202f"), "the same everywhere"
        return output.count(count)

    def keep(n: int) -> None:
        rows(f"DELETE FROM tasks WHERE id NOT IN (SELECT id FROM tasks ORDER BY id LIMIT {n})")

    rows("INSERT INTO tasks (task_id, role) SELECT 'many ' || i, 'sync' FROM generate_series(1, 51000) AS i")
    assert pending() == "50,000+"
    keep(50_000)
    assert pending() == "50,000"
    for n in (1_234, 0):
        keep(n)
        assert pending() == f"{n:,}"


def test_of_a_role_there_are_at_least_as_many_as_were_counted(ask: Callable[..., Any], put: Put) -> None:
    for _ in range(4):
        put("work")
    (depth,) = ask(insights.depth, "work", cap=3)
    assert output.count(depth.pending) == "3+"
    assert output.count(ask(insights.counts, "work", cap=3)["pending"]) == "3+"
