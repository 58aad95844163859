"""What happened in each minute is counted once, afterwards, from the rows that are left of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.insights.history.histogram import BOUNDS, BUCKETS, counts
from celeriac.repair import minutes, sweep
from celeriac.repair.minutes import MINUTE
from celeriac.repair.prune import MINUTES_KEPT
from celeriac.store.connections import Database
from tests.postgres.finished import live_worker, registered
from tests.processes import Rows

#: A task that ended so many seconds into a minute, began and was due so long before.
ENDED = """
INSERT INTO worker_tasks (task_id, role, status, worker_id, worker_pid, last_heartbeat_at, created_at, scheduled_for,
    started_at, completed_at, retry_count, tries)
SELECT CAST(gen_random_uuid() AS text), :role, :status, 'w', :pid, :at, begun - :waited * interval '1 second',
    begun - :waited * interval '1 second', begun, :at, :retries, CAST(:status = 'failed' AS integer)
FROM LATERAL (SELECT CAST(:at AS timestamptz) - :ran * interval '1 second' AS begun) AS b
"""

FOUND = "SELECT role, minute, enqueued, started, completed, failed, cancelled, retried FROM minutes ORDER BY 1, 2"

pytestmark = pytest.mark.usefixtures("app")


@pytest.fixture
def first(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """The first minute that is not counted yet, ten before this one. Nobody has to commit anything."""
    monkeypatch.setattr(minutes, "LAG", -1.0)
    at: datetime = rows.one("SELECT date_trunc('minute', now()) - interval '10 minutes'")
    go_on(rows, at)
    return at


def go_on(rows: Rows, at: datetime) -> None:
    """The next minute that is counted begins then."""
    rows("UPDATE minutes_until SET until = :at, seen_at = :at", at=at)


def count(app: Celeriac) -> int:
    """Looks for what there is, and counts it."""
    return sweep(app, "minutes") + sweep(app, "minutes")


def ended(rows: Rows, at: datetime, role: str = "work", status: str = "completed", **more: Any) -> None:
    rows(ENDED, **{"role": role, "status": status, "at": at, "waited": 0, "ran": 1, "pid": 1, "retries": 0} | more)


def event(rows: Rows, at: datetime, kind: str, task: int = 0, becomes: str = "pending") -> None:
    rows(
        """INSERT INTO task_events (task, role, at, kind, from_status, to_status)
        VALUES (:task, 'work', :at, :kind, 'running', :becomes)""",
        at=at, kind=kind, task=task, becomes=becomes,
    )  # fmt: skip


def spread(**buckets: int) -> list[int]:
    return counts((int(bucket[1:]), n) for bucket, n in buckets.items())


def test_a_minute_has_what_happened_in_it(app: Celeriac, rows: Rows, first: datetime) -> None:
    second = first + MINUTE
    ended(rows, first, waited=0.004, ran=0.5)
    ended(rows, first + timedelta(seconds=59.9), waited=20, ran=30)
    ended(rows, second, ran=70)
    ended(rows, second + timedelta(seconds=5), status="failed", waited=9000, ran=3)
    ended(rows, second + timedelta(seconds=9), status="cancelled", ran=2)
    ended(rows, second, role="other")
    for kind, becomes in (("retry", "pending"), ("timeout", "pending"), ("timeout", "failed"), ("snooze", "pending")):
        event(rows, first, kind, becomes=becomes)
    assert count(app) > 0
    told = {(role, at): figures for role, at, *figures in rows(FOUND)}
    # enqueued, started, completed, failed, cancelled, retried
    assert told[("work", first)][1:] == [1, 2, 0, 0, 2]
    assert told[("work", second)][1:] == [2, 1, 1, 1, 0]
    assert told[("other", second)][2:] == [1, 0, 0, 0]
    assert [sum(of[n] for (role, _), of in told.items() if role == "work") for n in (0, 1)] == [5, 5]
    waits, runs = rows("SELECT waits, runs FROM minutes WHERE role = 'work' AND minute = :at", at=first)[0]
    assert waits == spread(b0=1, b11=1)
    assert runs == spread(b6=1, b11=1)
    waits, runs = rows("SELECT waits, runs FROM minutes WHERE role = 'work' AND minute = :at", at=second)[0]
    assert (waits[0], waits[-1], sum(waits)) == (2, 1, 3)
    assert runs == spread(b9=1, b13=1)
    assert len(waits) == len(runs) == BUCKETS


def test_tasks_that_shared_a_ticket_are_told_with_their_mean(app: Celeriac, rows: Rows, first: datetime) -> None:
    begun = first + timedelta(seconds=1)
    for n in range(1, 11):
        ended(rows, begun + timedelta(seconds=0.2 * n), ran=0.2 * n)
    count(app)
    assert rows.one("SELECT runs FROM minutes WHERE completed > 0") == spread(b5=10)
    assert rows.one("SELECT run_seconds FROM minutes_in_all") == pytest.approx(2)


def test_tasks_that_ran_side_by_side_each_took_their_own_time(app: Celeriac, rows: Rows, first: datetime) -> None:
    """Fifty of two seconds share a ticket, of a worker whose slots share a process."""
    live_worker(rows, "w", resources='{"shares_process": true}')
    for _ in range(50):
        ended(rows, first + timedelta(seconds=3), ran=2)
    count(app)
    assert rows.one("SELECT runs FROM minutes WHERE completed > 0") == counts([(BOUNDS.index(2.5), 50)])
    assert rows.one("SELECT run_seconds FROM minutes_in_all") == pytest.approx(100)


def test_what_began_long_before_it_ended_counts_where_it_began(app: Celeriac, rows: Rows, first: datetime) -> None:
    ended(rows, first, ran=30)
    count(app)
    ended(rows, first + 2 * MINUTE, ran=130)
    go_on(rows, first + 2 * MINUTE)
    count(app)
    assert rows("SELECT minute, started FROM minutes WHERE started > 0") == [(first - MINUTE, 2)]


def test_what_was_tried_before_is_told_apart(app: Celeriac, rows: Rows, first: datetime) -> None:
    registered(rows, "forgets", keep=None)
    for role in ("work", "forgets"):
        for status in ("completed", "failed", "cancelled"):
            ended(rows, first, role, status, retries=2)
            ended(rows, first, role, status)
    rows("INSERT INTO outcomes VALUES ('forgets', :at, 9, 1, 4, 1, 3.5)", at=first)
    count(app)
    again = "SELECT role, completed, completed_again, failed, failed_again FROM minutes WHERE completed > 0 ORDER BY 1"
    assert rows(again) == [("forgets", 9, 4, 2, 1), ("work", 2, 1, 2, 1)]


def test_a_second_sweep_counts_nothing_twice(app: Celeriac, rows: Rows, first: datetime) -> None:
    ended(rows, first, waited=1)
    assert count(app) > 0
    before = (rows(FOUND), rows("SELECT * FROM minutes_in_all"))
    assert count(app) == 0
    assert (rows(FOUND), rows("SELECT * FROM minutes_in_all")) == before


def test_one_sweep_at_a_time_counts(app: Celeriac, database: Database, rows: Rows, first: datetime) -> None:
    ended(rows, first)
    with database.transaction() as connection:
        connection.exec_driver_sql("SELECT FROM celeriac.minutes_until FOR UPDATE")
        assert count(app) == 0
    assert rows(FOUND) == []
    assert count(app) > 0


def test_one_that_dies_between_two_minutes_has_counted_the_first_and_the_next_goes_on(
    app: Celeriac, rows: Rows, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        ended(rows, first + n * MINUTE, waited=1)
    look = minutes.minute

    def dies(connection: Any, since: datetime) -> Any:
        told = look(connection, since)
        if since == first + MINUTE:
            raise KeyboardInterrupt
        return told

    with monkeypatch.context() as patched:
        patched.setattr(minutes, "minute", dies)
        with pytest.raises(KeyboardInterrupt):
            count(app)
    assert rows("SELECT minute FROM minutes WHERE completed > 0") == [(first,)]
    count(app)
    done = rows("SELECT minute, completed FROM minutes WHERE completed > 0 ORDER BY 1")
    assert done == [(first + n * MINUTE, 1) for n in range(3)]
    totals = "SELECT completed, enqueued, waits, wait_seconds, run_seconds FROM minutes_in_all"
    assert rows(totals) == [(3, 3, spread(b7=3), 3.0, 3.0)]


def test_what_somebody_may_still_have_to_commit_is_left_for_later(
    app: Celeriac, rows: Rows, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(rows, first)
    count(app)
    ended(rows, first + MINUTE)
    go_on(rows, first + MINUTE)
    rows("UPDATE minutes_until SET seen_at = :at", at=first + 1.5 * MINUTE)
    monkeypatch.setattr(minutes, "LAG", 15.0)
    assert count(app) == 0
    rows("UPDATE minutes_until SET seen_at = now() - interval '14 seconds'")
    assert count(app) == 0
    rows("UPDATE minutes_until SET seen_at = now() - interval '15 seconds'")
    assert count(app) > 0
    assert rows("SELECT minute FROM minutes WHERE completed > 0 ORDER BY 1") == [(first,), (first + MINUTE,)]


def test_after_an_outage_it_catches_up_so_many_minutes_a_sweep(
    app: Celeriac, rows: Rows, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minutes, "MINUTES", 3)
    for n in range(5):
        ended(rows, first + n * MINUTE)
    done = []
    for _ in range(3):
        sweep(app, "minutes")
        done.append(rows.one("SELECT count(*) FROM minutes WHERE completed > 0"))
    assert done == [0, 3, 5]


def test_after_a_very_long_one_it_begins_with_what_would_be_kept(
    app: Celeriac, rows: Rows, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minutes, "MINUTES", 1)
    go_on(rows, first - timedelta(days=100))
    count(app)
    kept = f"SELECT until > now() - interval '{MINUTES_KEPT} days' FROM minutes_until"
    assert rows.one(kept) is True


def test_of_a_role_that_keeps_no_successes_what_its_workers_counted_is_known(
    app: Celeriac, rows: Rows, first: datetime
) -> None:
    registered(rows, "work", keep=None)
    ended(rows, first, status="failed")
    registered(rows, "nothing", keep=0)
    for status in ("completed", "failed"):
        ended(rows, first, "nothing", status, retries=2)  # members of a group: their rows are the body's
    registered(rows, "kept", keep=60)
    rows(
        """INSERT INTO outcomes VALUES ('work', :at, 7, 1, 0, 0, 3.5), ('kept', :at, 9, 0, 0, 0, 1),
            ('nothing', :at, 5, 3, 0, 2, 1)""",
        at=first,
    )
    count(app)
    assert rows(FOUND) == [("nothing", first, None, None, 5, 3, 0, 0), ("work", first, None, None, 7, 1, 0, 0)]
    assert rows("SELECT failed_again, waits, runs FROM minutes ORDER BY role") == [(2, None, None), (0, None, None)]
    in_all = "SELECT completed, failed, enqueued, waits, wait_seconds FROM minutes_in_all ORDER BY role"
    assert rows(in_all) == [(5, 3, 0, None, 0), (7, 1, 0, None, 0)]


def test_tasks_are_counted_by_when_they_were_enqueued_whatever_became_of_them(
    app: Celeriac, rows: Rows, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minutes, "BATCH", 2)
    insert = "INSERT INTO worker_tasks (task_id, role, created_at) VALUES (:t, 'work', :at)"
    for n in range(5):
        rows(insert, t=f"t{n}", at=first + (n % 2) * MINUTE)
    ended(rows, first + timedelta(seconds=9))
    rows(insert, t="of a time to come", at=datetime(2100, 1, 1, tzinfo=first.tzinfo))
    rows("INSERT INTO worker_tasks (task_id, role, id) VALUES ('of an id to come', 'work', 1000000)")
    count(app)
    by_minute = dict(rows("SELECT minute, enqueued FROM minutes WHERE enqueued > 0"))
    assert (by_minute[first], by_minute[first + MINUTE], sum(by_minute.values())) == (4, 2, 7)
    rows(insert, t="since then", at=first)
    count(app)
    assert rows.one("SELECT enqueued FROM minutes_in_all") == rows.one("SELECT sum(enqueued) FROM minutes") == 8


def test_a_minute_is_counted_when_what_was_enqueued_in_it_is(
    app: Celeriac, rows: Rows, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a chart would show less and less coming towards its end."""
    monkeypatch.setattr(minutes, "BATCH", 1)
    monkeypatch.setattr(minutes, "BATCHES", 2)
    for n in range(5):
        ended(rows, first + timedelta(seconds=n + 1))
    done = []
    for _ in range(4):
        sweep(app, "minutes")
        done.append(rows("SELECT enqueued, completed FROM minutes WHERE minute = :at", at=first))
    assert done == [[], [(2, 0)], [(4, 0)], [(5, 5)]]


def test_what_is_pruned_still_counts_in_all(app: Celeriac, rows: Rows, first: datetime) -> None:
    ended(rows, first, waited=1)
    count(app)
    in_all = rows("SELECT * FROM minutes_in_all")
    rows(f"UPDATE minutes SET minute = minute - interval '{MINUTES_KEPT} days'")
    sweep(app, "prune")
    assert (rows(FOUND), rows("SELECT * FROM minutes_in_all")) == ([], in_all)
