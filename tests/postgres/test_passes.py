"""The batcher's pass finds what is due, outlives whatever goes wrong, and is repeated while there is work and room."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, event

from celeriac import Celeriac
from celeriac.dispatch import claim, record, select
from celeriac.dispatch.decide import FIRST_LOOK
from celeriac.dispatch.passes import PASSES, Dispatcher, Pass
from celeriac.dispatch.publish import Ticket
from celeriac.repair import lost_tickets
from celeriac.store.connections import Database
from tests.postgres.conftest import Recorder, new_task
from tests.postgres.finished import live_worker
from tests.postgres.passes import ROLE, Passes, Waiting, finish, role
from tests.postgres.stages import enqueued
from tests.processes import Rows, until


def test_what_has_become_due_is_claimed_by_the_same_pass(passes: Passes, database: Database, rows: Rows) -> None:
    enqueued(database, new_task(account="a", delay=1000.0), new_task(account="b", delay=1000.0))
    assert passes.why_nothing() == "nothing is ready"
    rows("UPDATE worker_tasks SET scheduled_for = now() WHERE account = 'a'")
    assert passes.given() == {"a": 1}


def test_what_becomes_due_while_the_role_is_paused_is_made_ready(
    passes: Passes, database: Database, rows: Rows
) -> None:
    rows("INSERT INTO celeriac.roles (role, definition, paused) VALUES ('work', '{}', true)")
    enqueued(database, new_task(delay=1000.0))
    rows("UPDATE worker_tasks SET scheduled_for = now()")
    assert passes.why_nothing() == "the role is paused"
    assert rows("SELECT waits_for FROM worker_tasks") == [(None,)]


def test_a_crash_between_claim_and_publish_strands_nothing(
    app: Celeriac, dispatcher: Dispatcher, waiting: Waiting, rows: Rows
) -> None:
    """The seed's rows stayed scheduled: "manual cleanup may be needed"."""
    waiting(a=100, b=100)
    stranded = dispatcher.run_pass(ROLE)
    assert app.publisher.publish(stranded.tickets[:10])
    rows("UPDATE worker_tasks SET claimed_at = now() - interval '1 day' WHERE status = 'claimed'")
    assert lost_tickets.lost_tickets(app) == 50
    again = Dispatcher(app.database, app.publisher, "test")
    assert again.dispatch(role(batch_size=200)) == 190
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("claimed",)]
    tokens = [str(token) for (token,) in rows("SELECT token FROM celeriac.tickets")]
    assert len(app.publisher.queued("work", tokens) or ()) == 200


def test_a_pass_that_throws_leaves_nothing_claimed_and_the_next_one_works(
    passes: Passes, waiting: Waiting, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed's `inProgress` stayed true, and its cron was dead."""
    waiting(a=3)
    with monkeypatch.context() as broken:
        broken.setattr(record, "done", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            passes.given()
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("pending",)]
    assert passes.given() == {"a": 3}


def test_of_two_passes_at_once_one_finds_the_role_busy(
    passes: Passes, dispatcher: Dispatcher, database: Database, waiting: Waiting
) -> None:
    waiting(a=3)
    with database.transaction() as other:
        assert select.lock_pass(other, "work")
        assert dispatcher.run_pass(ROLE) == Pass(busy=True, why_nothing="another pass is under way")
        assert dispatcher.run_pass(role(name="another")).busy is False
    assert passes.given() == {"a": 3}


def test_a_pass_is_planned_by_look_ups_in_an_index_s_order(database: Database) -> None:
    """Of a backlog without statistics an account's first entries were found by sorting all 200,000."""
    with database.transaction() as connection:
        assert select.lock_pass(connection, "work")
        settings = [connection.exec_driver_sql(f"SHOW enable_{how}").scalar_one() for how in ("bitmapscan", "sort")]
    assert settings == ["off", "off"]


def test_a_pass_goes_on_in_order_after_it_has_made_due_tasks_ready(
    dispatcher: Dispatcher, database: Database, rows: Rows, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueued(database, new_task(account="late", delay=1000.0))
    rows("UPDATE worker_tasks SET scheduled_for = now()")
    waiting(a=3)
    settings: list[str] = []
    claim_as_usual = claim.claim

    def watched(connection: Connection, *given: Any) -> Any:
        settings.extend(connection.exec_driver_sql(f"SHOW enable_{how}").scalar_one() for how in ("bitmapscan", "sort"))
        return claim_as_usual(connection, *given)

    monkeypatch.setattr(claim, "claim", watched)
    assert dispatcher.dispatch(ROLE) == 4
    assert settings == ["off", "off"]


def test_of_an_only_account_a_pass_counts_what_it_claimed(passes: Passes, waiting: Waiting) -> None:
    waiting(a=FIRST_LOOK + 3)
    assert passes.given() == {"a": FIRST_LOOK + 3}
    (claimants, _given) = passes.written("claimants, given")[-1]
    assert claimants == [{"account": "a", "waiting": FIRST_LOOK + 3}]


def test_the_only_pass_of_the_half_minute_waits_for_a_moments_lock(
    dispatcher: Dispatcher, database: Database, waiting: Waiting, rows: Rows
) -> None:
    waiting(a=3)
    looks: list[str] = []
    with ThreadPoolExecutor(1) as beat, database.transaction() as other:
        assert select.lock_pass(other, "work")
        event.listen(dispatcher.database._verbs, "before_cursor_execute", lambda *call: looks.append(call[2]))
        published = beat.submit(dispatcher.dispatch, ROLE)
        until(lambda: sum("pg_try_advisory" in statement for statement in looks) >= 2, "the pass to look again")
        other.exec_driver_sql("COMMIT; BEGIN")
        assert published.result() == 3
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("claimed",)]


def test_a_row_that_somebody_has_locked_is_passed_over(passes: Passes, database: Database, waiting: Waiting) -> None:
    waiting(a=3)
    with database.transaction() as other:
        other.exec_driver_sql("SELECT FROM celeriac.ready LIMIT 1 FOR UPDATE")
        assert passes.given() == {"a": 2}
        assert passes.why_nothing() == "all that is ready is locked by others"
    assert passes.given() == {"a": 1}
    written = [({"a": 2}, None), ({}, "all that is ready is locked by others"), ({"a": 1}, None)]
    assert passes.written("given, why_nothing") == written


def test_what_redis_does_not_take_waits_again_at_once(
    dispatcher: Dispatcher, publisher: Recorder, waiting: Waiting, rows: Rows
) -> None:
    waiting(a=3)
    publisher.takes = False
    assert dispatcher.dispatch(ROLE) == 0
    assert rows("SELECT DISTINCT status, losses FROM worker_tasks") == [("pending", 0)]
    assert rows("SELECT DISTINCT kind, to_status FROM celeriac.task_events") == [("unpublished", "pending")]
    publisher.takes = True
    assert dispatcher.dispatch(ROLE) == 3


def test_while_redis_is_left_alone_nothing_is_claimed(
    passes: Passes, publisher: Recorder, waiting: Waiting, rows: Rows
) -> None:
    waiting(a=3)
    publisher.is_open = False
    assert passes.why_nothing() == "Redis is not reachable"
    publisher.is_open = True
    assert passes.given() == {"a": 3}


def test_a_prompt_role_is_dispatched_until_nothing_is_left(
    dispatcher: Dispatcher, publisher: Recorder, waiting: Waiting
) -> None:
    waiting(a=130)
    assert dispatcher.dispatch(role(prompt=True)) == 130
    assert len({i for t in publisher.published for i in t.ids}) == 130


def test_a_role_that_is_not_prompt_gets_one_pass(dispatcher: Dispatcher, waiting: Waiting) -> None:
    waiting(a=130)
    assert dispatcher.dispatch(ROLE) == 60
    assert dispatcher.dispatch_if_due(ROLE) == 0


def test_whoever_dispatches_has_done_after_a_few_passes_however_fast_tasks_settle(
    dispatcher: Dispatcher, publisher: Recorder, waiting: Waiting, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker sent no heartbeat until the backlog was empty."""

    def settle_at_once(tickets: Sequence[Ticket]) -> bool:
        publisher.published += tickets
        finish(rows)
        return True

    monkeypatch.setattr(publisher, "publish", settle_at_once)
    waiting(a=20 * ROLE.batch_size)
    for turn in (1, 2):
        assert dispatcher.dispatch_if_due(role(prompt=True)) == PASSES * ROLE.batch_size
        assert len(publisher.published) == turn * PASSES * ROLE.batch_size


def test_a_prompt_role_is_refilled_once_a_quarter_of_its_window_is_free(
    dispatcher: Dispatcher, database: Database, waiting: Waiting, rows: Rows
) -> None:
    window = role(window=8, prompt=True)
    waiting(a=20)
    assert dispatcher.dispatch_if_due(window) == 8
    rows("UPDATE tickets SET claimed_at = claimed_at + interval '1 minute'")  # just now, however slow the machine
    free = "UPDATE worker_tasks SET status = 'completed', completed_at = now() WHERE id IN (SELECT id FROM worker_tasks"
    rows(f"{free} WHERE status = 'claimed' LIMIT 2)")
    assert dispatcher.dispatch_if_due(window) == 0
    rows(f"{free} WHERE status = 'claimed' LIMIT 1)")
    assert dispatcher.dispatch_if_due(window) == 3


def test_where_nobody_settles_for_a_second_what_is_left_of_a_window_is_filled(
    dispatcher: Dispatcher, waiting: Waiting, rows: Rows
) -> None:
    """The last quarter of a window stayed empty until beat's pass, while long tasks ran in the rest of it."""
    window = role(window=8, prompt=True)
    waiting(a=20)
    assert dispatcher.dispatch_if_due(window) == 8
    rows("""UPDATE worker_tasks SET status = 'completed', completed_at = now()
        WHERE id IN (SELECT id FROM worker_tasks WHERE status = 'claimed' LIMIT 2)""")
    rows("UPDATE tickets SET claimed_at = claimed_at - interval '1 second'")
    assert dispatcher.dispatch_if_due(window) == 0, "there was a pass just now, whatever it came to"
    rows("UPDATE celeriac.passes SET last_at = last_at - interval '1 second'")
    assert dispatcher.dispatch_if_due(window) == 2
    assert dispatcher.dispatch_if_due(window) == 0


def test_while_each_slot_has_a_ticket_to_start_what_becomes_ready_waits_for_the_next_tickets(
    dispatcher: Dispatcher, waiting: Waiting, rows: Rows
) -> None:
    live_worker(rows, concurrency=2)
    live_worker(rows, "elsewhere", queues='["other"]', concurrency=8)
    waiting(a=20)
    few = role(batch_size=1, prompt=True)
    assert dispatcher.dispatch_if_due(few) == 2, "a ticket for each slot"
    assert dispatcher.dispatch_if_due(few) == 0
    began = "UPDATE tickets SET worker_id = 'w', worker_pid = 1, started_at = now(), heartbeat_at = now()"
    rows(f"{began} WHERE token = (SELECT token FROM tickets WHERE worker_id IS NULL LIMIT 1)")
    assert dispatcher.dispatch_if_due(few) == 1, "one has begun"
    rows("UPDATE tickets SET claimed_at = claimed_at - interval '1 second' WHERE worker_id IS NULL")
    assert dispatcher.dispatch_if_due(few) == 2, "who waits longer may be lost, and holds nobody up"


def test_due_work_is_work(dispatcher: Dispatcher, database: Database, rows: Rows) -> None:
    enqueued(database, new_task(delay=1000.0))
    assert dispatcher.has_work_and_room(ROLE) is False
    rows("UPDATE worker_tasks SET scheduled_for = now()")
    assert dispatcher.has_work_and_room(ROLE) is True
    rows("INSERT INTO celeriac.roles (role, definition, paused) VALUES ('work', '{}', true)")
    assert dispatcher.has_work_and_room(ROLE) is False
