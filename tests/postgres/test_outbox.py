"""Nobody waits for somebody's open transaction: what its unique key keeps out is accepted, and admitted afterwards."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.doctor import examine
from celeriac.enqueue import outbox
from celeriac.enqueue.insert import enqueue
from celeriac.settle import write
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import outcome, running
from tests.processes import Rows

#: Generous for what takes a fifth of a second at most: a wait for the other transaction would be without end.
SOON = 5.0

TASKS = "SELECT role, unique_key, priority, status FROM worker_tasks ORDER BY id"


def admitted(database: Database) -> set[str]:
    return outbox.Admission(database).look()


def put(database: Database, **options: Any) -> None:
    with database.transaction() as connection:
        outbox.put(connection, [new_task(**options)])


def soon(act: Callable[[], object]) -> object:
    began = time.monotonic()
    done = act()
    assert time.monotonic() - began < SOON
    return done


def test_a_call_whose_unique_key_somebody_has_is_accepted_at_once_and_admitted_afterwards(
    app: Celeriac, rows: Rows
) -> None:
    @app.task(role="work", shared=False, prompt=False, unique_by="key")
    def work(key: str) -> None: ...

    with Session(app.database.engine) as session:
        work.using(session=session).delay("k")
        result = work.using(priority=7).delay("k")
        assert result.is_new is None
        assert soon(lambda: admitted(app.database)) == set(), "it is still held up"
        session.rollback()
    assert admitted(app.database) == {"work"}
    assert rows(TASKS) == [("work", "k", 7, "pending")]
    assert rows("SELECT FROM intake") == []


def test_one_that_turns_out_to_be_a_duplicate_is_none_of_its_own(app: Celeriac, rows: Rows) -> None:
    @app.task(role="work", shared=False, prompt=False, unique_by="key")
    def work(key: str) -> None: ...

    with Session(app.database.engine) as session:
        first = work.using(session=session).delay("k")
        work.delay("k")
        session.commit()
    admitted(app.database)
    assert rows("SELECT id FROM worker_tasks") == [(first.row_id,)]
    assert rows("SELECT FROM intake") == []


def test_a_settle_does_not_wait_for_its_follow_ups_unique_key(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    following = [new_task("next", unique_key="k", delay=60.0), new_task("next")]
    with database.transaction() as other:
        enqueue(other, [new_task("next", unique_key="k")])

        def settle() -> set[int]:
            with database.transaction() as connection:
                return set(write.settle(connection, [outcome(task)], "test", follow_ups={task.id: following}))

        assert soon(settle) == {task.id}
        assert rows("SELECT status FROM worker_tasks") == [("completed",)]
    admitted(database)
    waiting = (
        "SELECT unique_key, scheduled_for > now() + interval '30 s' FROM worker_tasks WHERE role = 'next' ORDER BY 1"
    )
    assert rows(waiting) == [("k", False), (None, False)], "the other's came first; the delayed one is its duplicate"


def test_the_delay_of_what_is_admitted_later_counts_from_its_call(database: Database, rows: Rows) -> None:
    with database.transaction() as other:
        enqueue(other, [new_task(unique_key="k")])
        with database.transaction() as connection:
            assert (
                outbox.enqueue_or_put(connection, [new_task(unique_key="k", delay=1000.0, expires_in=2000.0)]) is None
            )
        other.exec_driver_sql("DELETE FROM celeriac.ready")
        other.exec_driver_sql("DELETE FROM celeriac.tasks")
    admitted(database)
    assert rows("SELECT waits_for, expires_at - scheduled_for = interval '1000 s' FROM worker_tasks") == [
        ("time", True)
    ]


def test_an_id_that_somebodys_open_transaction_has_is_not_waited_for(app: Celeriac, rows: Rows) -> None:
    @app.task(role="work", shared=False, prompt=False)
    def work() -> None: ...

    with Session(app.database.engine) as session:
        work.apply_async(task_id="named", session=session)
        assert soon(lambda: work.apply_async(task_id="named").id) == "named"
        assert admitted(app.database) == set(), "it is still held up"
        session.commit()
    admitted(app.database)
    assert rows("SELECT task_id FROM worker_tasks") == [("named",)]
    assert rows("SELECT FROM intake") == []


@pytest.mark.parametrize("retries", [None, 0, 3])
def test_how_often_it_may_be_retried_is_what_the_call_said(database: Database, rows: Rows, retries: int | None) -> None:
    put(database, max_retries=retries)
    admitted(database)
    assert rows("SELECT max_retries FROM worker_tasks") == [(retries,)]


@pytest.mark.parametrize("bad", ['{"role": "work", "of_a_later_release": 1}', "[]", '"text"', "17", "null"])
def test_what_cannot_be_admitted_is_told_once_and_left_and_keeps_no_other_waiting(
    database: Database, rows: Rows, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    rows("INSERT INTO intake (task) VALUES (CAST(:bad AS jsonb))", bad=bad)
    put(database, role="other")
    admission = outbox.Admission(database)
    assert [admission.look() for _ in range(2)] == [{"other"}, set()]
    assert rows("SELECT count(*) FROM intake") == [(1,)]
    assert caplog.text.count("cannot be inserted") == 1


def test_what_nobody_can_admit_is_named_until_it_is(app: Celeriac, database: Database, rows: Rows) -> None:
    put(database, role="work", unique_key="k")
    assert [one for one in examine(app) if one.check == "outbox" and not one.ok] == []
    rows("UPDATE celeriac.intake SET at = now() - interval '5 minutes'")
    (told,) = (one for one in examine(app) if one.check == "outbox")
    number = rows.one("SELECT id FROM celeriac.intake")
    assert (told.ok, told.runbook) == (False, "docs/runbooks/stuck_outbox.md")
    assert told.says == (
        f"the outbox: 1 accepted tasks wait to be inserted, the oldest, row {number} of celeriac.intake with a task of "
        "work, for 5 min"
    )
    assert admitted(database) == {"work"}
    assert [one.ok for one in examine(app) if one.check == "outbox"] == [True]


def test_what_postgres_refuses_keeps_no_other_waiting(database: Database, rows: Rows) -> None:
    put(database, at="no time")
    put(database, role="other")
    assert admitted(database) == {"other"}
    assert rows("SELECT count(*) FROM intake") == [(1,)]


def test_a_look_that_takes_too_long_ends_and_the_next_goes_on_behind_it(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("a", "b", "c"):
        put(database, role=role)
    admission = outbox.Admission(database)
    with database.transaction() as other:
        other.exec_driver_sql("SELECT FROM celeriac.intake ORDER BY id LIMIT 1 FOR UPDATE")
        monkeypatch.setattr(outbox, "BUDGET", 0)
        monkeypatch.setattr(outbox, "TRIPS", 0)
        monkeypatch.setattr(outbox, "BATCH", 1)
        assert [admission.look() for _ in range(2)] == [{"b"}, {"c"}]
    assert [admission.look() for _ in range(2)] == [set(), {"a"}], "at the end it begins anew"


#: Statements for a batch that nothing holds up, and for each halving of one that has tasks that cannot be admitted.
OF_A_BATCH, OF_A_HALVING = 10, 16


@pytest.fixture
def trips(database: Database) -> Iterator[list[str]]:
    """The statements that are sent: over a distance each costs a round trip."""
    sent: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        sent.append(statement)

    event.listen(database._verbs, "before_cursor_execute", note)
    yield sent
    event.remove(database._verbs, "before_cursor_execute", note)


def test_many_are_admitted_in_few_round_trips(database: Database, rows: Rows, trips: list[str]) -> None:
    with database.transaction() as connection:
        outbox.put(connection, [new_task(unique_key=f"k{n}") for n in range(3 * outbox.BATCH)])
    trips.clear()
    assert admitted(database) == {"work"}
    assert len(trips) <= 4 * OF_A_BATCH
    assert rows("SELECT count(*) FROM worker_tasks") == [(3 * outbox.BATCH,)]


def test_one_that_is_held_up_or_bad_keeps_none_of_its_batch_waiting(
    database: Database, rows: Rows, trips: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    n = outbox.BATCH
    with database.transaction() as connection:
        outbox.put(connection, [new_task(unique_key=f"k{i}") for i in range(n - 1)])
    put(database, at="no time")
    trips.clear()
    admission = outbox.Admission(database)
    with database.transaction() as other:
        enqueue(other, [new_task(unique_key="k3")])
        trips.clear()
        admission.look()
        assert len(trips) <= 2 * OF_A_HALVING * math.log2(n)
        assert rows("SELECT count(*) FROM worker_tasks") == [(n - 2,)]
    admission.look()
    assert rows("SELECT count(*) FROM intake") == [(1,)]
    assert caplog.text.count("cannot be inserted") == 1


@pytest.mark.parametrize(("trips_long", "n"), [(0, 2), (10**6, 4)])
def test_a_look_over_a_distance_lasts_for_as_many_round_trips(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch, trips_long: int, n: int
) -> None:
    """Else its time is over after the first batch."""
    monkeypatch.setattr(outbox, "BUDGET", 0)
    monkeypatch.setattr(outbox, "TRIPS", trips_long)
    monkeypatch.setattr(outbox, "BATCH", 2)
    for _ in range(4):
        put(database)
    admitted(database)
    assert rows("SELECT count(*) FROM worker_tasks") == [(n,)]


def test_a_batch_that_there_was_no_time_for_is_gone_on_with(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(database, at="no time")
    for role in ("a", "b", "c"):
        put(database, role=role)
    admission = outbox.Admission(database)
    monkeypatch.setattr(outbox, "BUDGET", 0)
    monkeypatch.setattr(outbox, "TRIPS", 0)
    assert [admission.look() for _ in range(2)] == [set(), {"a", "b", "c"}]
