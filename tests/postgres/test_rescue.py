"""Rescue: what silent workers hold, and what lies in no queue, waits again; what takes its time is left alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from celeriac import Celeriac
from celeriac.dispatch.publish import Ticket
from celeriac.repair import lost_tickets, rescue
from celeriac.run import lease
from celeriac.settle import release
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import PID, WORKER, claimed, enqueued, running, started
from tests.postgres.test_release import EVENTS, FREE, SILENT, STATE, held
from tests.processes import Rows

OLD_CLAIM = "UPDATE worker_tasks SET claimed_at = now() - interval '1 day' WHERE status = 'claimed'"


def test_a_rescue_frees_the_tasks_of_silent_workers_only(app: Celeriac, database: Database, rows: Rows) -> None:
    silent = running(database, new_task(), new_task())
    rows(SILENT)
    alive = running(database, new_task())
    enqueued(database, new_task())
    ids, _ = claimed(database)
    rows(OLD_CLAIM)
    assert rescue.rescue(app) == 2
    assert rows("SELECT id, status, losses FROM worker_tasks ORDER BY id") == [
        (silent[0].id, "pending", 1), (silent[1].id, "pending", 1), (alive[0].id, "running", 0), (ids[0], "claimed", 0)
    ]  # fmt: skip
    assert [row[:3] for row in rows(EVENTS)] == [("rescue", "running", "pending")] * 2
    assert rescue.rescue(app) == 0


def test_each_role_says_how_long_silence_may_last(app: Celeriac, database: Database, rows: Rows) -> None:
    rows("""INSERT INTO roles (role, definition) VALUES ('hasty', '{"stale_after": 1}'), ('calm', '{}')""")
    for role in ("hasty", "calm", "unregistered"):
        running(database, new_task(role))
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '5 minutes'")
    assert rescue.rescue(app) == 1
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '11 minutes'")
    assert rescue.rescue(app) == 2


def test_a_rescue_works_in_batches_until_one_is_short(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescue, "TICKETS", 3)
    for _ in range(7):
        running(database, new_task())
    rows(SILENT)
    assert rescue.rescue(app) == 7


def test_a_heartbeat_that_came_in_time_keeps_its_task(app: Celeriac, database: Database, rows: Rows) -> None:
    """The rescue locks what it found silent; what is being renewed or settled just then it passes over."""
    running(database, new_task())
    rows(SILENT)
    with database.transaction() as other:
        other.exec_driver_sql("UPDATE celeriac.tickets SET heartbeat_at = now()")
        assert rescue.rescue(app) == 0
    assert rescue.rescue(app) == 0


def test_what_a_rescue_found_silent_is_not_revived_under_its_hands(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    rows(SILENT)
    with database.transaction() as rescuing, database.statement() as beating:
        assert [one.token for one in release.stale(rescuing, 10)] == held(task)
        assert lease.renew(beating, WORKER, [PID]) == 0
    with database.statement() as beating:
        assert lease.renew(beating, WORKER, [PID]) == 1


# -- lost tickets ------------------------------------------------------------------------------------------------------


def published(app: Celeriac, ids: Sequence[int], token: str, queue: str = "work") -> None:
    assert app.publisher.publish([Ticket("work", queue, ids, token)])


def test_a_task_whose_ticket_is_in_no_queue_waits_again(app: Celeriac, database: Database, rows: Rows) -> None:
    enqueued(database, new_task())
    claimed(database)
    rows(OLD_CLAIM)
    assert lost_tickets.lost_tickets(app) == 1
    assert rows(STATE) == [(*FREE, 0, 0, None, None)]
    assert [row[:3] for row in rows(EVENTS)] == [("ticket_lost", "claimed", "pending")]


def test_a_task_whose_ticket_merely_queues_is_left_alone(app: Celeriac, database: Database, rows: Rows) -> None:
    enqueued(database, *(new_task() for _ in range(4)))
    queued, lost = claimed(database, n=2), claimed(database, n=2)
    published(app, *queued)
    rows(OLD_CLAIM)
    assert lost_tickets.lost_tickets(app) == 2
    assert [row for (row,) in rows("SELECT id FROM worker_tasks WHERE status = 'claimed' ORDER BY id")] == queued[0]
    assert len(started(database, *queued)) == 2
    assert started(database, *lost) == []


def test_a_ticket_is_looked_for_in_its_roles_own_queue(app: Celeriac, database: Database, rows: Rows) -> None:
    rows("""INSERT INTO roles (role, definition) VALUES ('work', '{"queue": "elsewhere"}')""")
    enqueued(database, new_task())
    published(app, *claimed(database), queue="elsewhere")
    rows(OLD_CLAIM)
    assert lost_tickets.lost_tickets(app) == 0


def test_a_young_claim_is_left_alone(app: Celeriac, database: Database) -> None:
    enqueued(database, new_task())
    claimed(database)
    assert lost_tickets.lost_tickets(app) == 0


def test_if_redis_cannot_be_asked_nothing_is_known_to_be_lost(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueued(database, new_task())
    claimed(database)
    rows(OLD_CLAIM)
    monkeypatch.setattr(app.publisher, "queued", lambda *_: None)
    assert lost_tickets.lost_tickets(app) == 0
    assert rows("SELECT status FROM worker_tasks") == [("claimed",)]


def test_after_a_flush_of_redis_every_claimed_task_waits_again(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_tickets, "BATCH", 3)
    enqueued(database, *(new_task() for _ in range(8)))
    for _ in range(8):
        published(app, *claimed(database))
    rows(OLD_CLAIM)
    assert lost_tickets.lost_tickets(app) == 0
    with app.publisher._connected() as producer:
        producer.channel.client.flushall()
    assert lost_tickets.lost_tickets(app) == 8
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("pending",)]
