"""Follow-ups that ask for a lock key: they line up behind who waited before, and leave no key without a leader."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from celeriac.enqueue.rows import NewTask
from celeriac.roles.role import Role
from celeriac.run.run import Run
from celeriac.run.settler import Settler
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued, outcome, running
from tests.processes import Rows, until

WAITS = "SELECT id, coalesce(waits_for, '') FROM worker_tasks WHERE status = 'pending' ORDER BY id"


@pytest.fixture
def settler(database: Database) -> Settler:
    return Settler(database, "test", on_enqueued=lambda _: None)


def keyed_run(task: Started, database: Database, *follow_ups: NewTask) -> Run:
    run = Run(task, Role(name="work"), database)
    run.follow_ups, run.outcome = list(follow_ups), outcome(task)
    return run


def test_a_follow_up_waits_behind_those_that_waited_for_the_key_already(
    settler: Settler, database: Database, rows: Rows
) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    (waiting,) = enqueued(database, new_task(lock_key="k"))
    settler.settle([keyed_run(task, database, new_task(lock_key="k"), new_task(lock_key="k"))])
    assert rows(WAITS) == [(waiting.id, ""), (waiting.id + 1, "lock"), (waiting.id + 2, "lock")]


def test_a_follow_up_leads_the_key_that_nobody_else_waits_for(settler: Settler, database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    settler.settle([keyed_run(task, database, new_task(lock_key="k"))])
    assert rows(WAITS) == [(task.id + 1, "")]


def test_a_follow_up_of_a_key_given_up_waits_for_its_time(settler: Settler, database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    settler.settle([keyed_run(task, database, new_task(lock_key="k", delay=1000))])
    assert rows(WAITS) == [(task.id + 1, "time")]


TOGETHER = """
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock_shared(1);
    RETURN new;
END $$;
CREATE TRIGGER wait BEFORE INSERT ON tasks FOR EACH ROW WHEN (new.task_id LIKE 'after %') EXECUTE FUNCTION wait()
"""


def test_two_settles_whose_follow_ups_line_up_behind_each_other_both_give_the_lead(
    settler: Settler, database: Database, rows: Rows
) -> None:
    """Each has freed its own key and written who waits for the other's: whoever commits last sees both."""
    one, two = (running(database, new_task(lock_key=key))[0] for key in ("a", "b"))
    after = [new_task("next", task_id=f"after {key}", lock_key=key) for key in ("b", "a")]
    runs = [keyed_run(task, database, follow_up) for task, follow_up in zip((one, two), after, strict=True)]
    rows(TOGETHER)
    with ThreadPoolExecutor(2) as threads:
        with database.transaction() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(1)")
            settles = [threads.submit(settler.settle, [run]) for run in runs]
            waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
            until(lambda: len(rows(waits)) == 2, "both to write their follow-ups")
        for settle in settles:
            settle.result()
    assert [waits_for for _, waits_for in rows(WAITS)] == ["", ""]
