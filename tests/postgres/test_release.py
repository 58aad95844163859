"""What a ticket or worker will not finish waits again: lost tickets, silent workers, released rows; losses count."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from celeriac.roles.backoff import Backoff
from celeriac.run import lease
from celeriac.settle import release
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import PID, WORKER, claimed, enqueued, looked, outcome, running, settle_in, settled, started
from tests.processes import Rows

EVENTS = "SELECT kind, from_status, to_status, by, why FROM task_events ORDER BY id"
SILENT = "UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 day' WHERE status = 'running'"

STATE = "SELECT status, token, waits_for, losses, retry_count, claimed_at, started_at FROM worker_tasks"
FREE = ("pending", None, None)


def freed(
    database: Database, tokens: Sequence[str], *, started: bool = True, loss: bool = True, only: list[int] | None = None
) -> list[tuple[int, str]]:
    """Which tasks, and what they become."""
    with database.transaction() as connection:
        done = release.release(
            connection, tokens, started=started, only=only, kind="lost", why="it died", by="test", loss=loss
        )
    return [(f.id, f.becomes) for f in done]


def held(*tasks: Started) -> list[str]:
    """Their tickets."""
    return sorted({task.token for task in tasks})


# -- release -----------------------------------------------------------------------------------------------------------


def test_a_released_task_waits_again_at_once(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(timeout=10.0))
    assert freed(database, held(task)) == [(task.id, "pending")]
    assert rows(STATE) == [(*FREE, 1, 0, None, None)]
    assert rows(EVENTS) == [("lost", "running", "pending", "test", "it died")]
    assert claimed(database)[0] == [task.id]


def test_a_hand_back_is_no_loss(database: Database, rows: Rows) -> None:
    freed(database, held(*running(database, new_task())), loss=False)
    assert rows(STATE) == [(*FREE, 0, 0, None, None)]


def test_a_claimed_task_can_be_released(database: Database, rows: Rows) -> None:
    enqueued(database, new_task())
    (task,), token = claimed(database)
    assert freed(database, [token], started=False, loss=False) == [(task, "pending")]
    assert rows(STATE) == [(*FREE, 0, 0, None, None)]


def test_a_release_is_fenced(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    (other,) = running(database, new_task("other"))
    assert freed(database, [str(uuid.uuid4())]) == []
    assert freed(database, held(other), only=[task.id]) == []
    assert freed(database, held(task), only=[]) == []
    assert freed(database, held(task), started=False) == []
    settled(database, outcome(task))
    assert freed(database, held(task)) == []
    assert freed(database, []) == []
    assert rows("SELECT role, status, losses FROM worker_tasks ORDER BY id") == [
        ("work", "completed", 0), ("other", "running", 0)
    ]  # fmt: skip
    assert rows(EVENTS) == []


def test_of_a_ticket_some_tasks_can_be_released(database: Database, rows: Rows) -> None:
    tasks = running(database, *(new_task(account="a") for _ in range(3)))
    assert freed(database, held(*tasks), only=[tasks[1].id]) == [(tasks[1].id, "pending")]
    assert rows("SELECT ids, accounts FROM tickets") == [([tasks[0].id, tasks[2].id], ["a", "a"])]
    assert settled(database, *map(outcome, tasks)) == {tasks[0].id, tasks[2].id}
    assert rows("SELECT ids FROM tickets") == []


def test_a_release_passes_over_what_somebody_settles_just_now(database: Database, rows: Rows) -> None:
    tasks = running(database, new_task()) + running(database, new_task())
    with database.transaction() as other:
        settle_in(other, outcome(tasks[0]))
        assert freed(database, held(*tasks)) == [(tasks[1].id, "pending")]
        assert rows("SELECT status FROM worker_tasks ORDER BY id") == [("running",), ("pending",)]
    assert rows("SELECT status FROM worker_tasks ORDER BY id") == [("completed",), ("pending",)]


@pytest.mark.parametrize(("role", "max_losses"), [("careful", 1), ("work", 3), ("stubborn", 5)])
def test_a_task_that_is_lost_too_often_fails(database: Database, rows: Rows, role: str, max_losses: int) -> None:
    if role != "work":
        definition = f'{{"max_losses": {max_losses}}}'
        rows("INSERT INTO roles (role, definition) VALUES (:role, CAST(:d AS jsonb))", role=role, d=definition)
    enqueued(database, new_task(role))
    for _ in range(max_losses):
        assert rows("SELECT status FROM worker_tasks") == [("pending",)]
        freed(database, held(*started(database, *claimed(database, role), role=role)))
    assert rows("SELECT status, token, losses, error_message, completed_at IS NOT NULL FROM worker_tasks") == [
        ("failed", None, max_losses, "it died", True)
    ]
    assert rows(f"{EVENTS} DESC LIMIT 1") == [("lost", "running", "failed", "test", "it died")]


def test_hand_backs_never_fail_a_task(database: Database, rows: Rows) -> None:
    enqueued(database, new_task())
    for _ in range(5):
        freed(database, held(*started(database, *claimed(database))), loss=False)
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 0)]


def test_losses_are_apart_from_attempts(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(max_retries=1))
    rows("UPDATE worker_tasks SET retry_count = 1, tries = 2")
    freed(database, held(task))
    assert rows("SELECT retry_count, tries, losses FROM worker_tasks") == [(1, 2, 1)]


def test_a_released_task_keeps_the_lead_of_its_lock(database: Database) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    enqueued(database, new_task(lock_key="k"))
    freed(database, held(task))
    assert claimed(database, n=2)[0] == [task.id]


BACKOFF = {"base": 10, "maximum": 30, "jitter": 0}
WAITS = """
SELECT losses, waits_for, round(extract(epoch FROM scheduled_for - updated_at)), retry_count FROM worker_tasks
"""


def declare(rows: Rows, **definition: Any) -> None:
    rows("INSERT INTO roles (role, definition) VALUES ('work', CAST(:d AS jsonb))", d=json.dumps(definition))


def test_a_lost_task_waits_out_its_roles_backoff_which_grows_with_its_losses(database: Database, rows: Rows) -> None:
    declare(rows, backoff=BACKOFF, max_losses=5)
    (task,) = running(database, new_task())
    for losses, delay in enumerate((10, 20, 30, 30), start=1):
        freed(database, held(task))
        assert rows(WAITS) == [(losses, "time", delay, 0)]
        rows("UPDATE worker_tasks SET scheduled_for = now(), waits_for = NULL")
        (task,) = started(database, *claimed(database))


def test_a_task_that_is_handed_back_waits_for_nothing(database: Database, rows: Rows) -> None:
    declare(rows, backoff=BACKOFF)
    freed(database, held(*running(database, new_task())), loss=False)
    assert rows("SELECT status, waits_for, scheduled_for <= now() FROM worker_tasks") == [("pending", None, True)]


@pytest.mark.parametrize(("jitter", "low", "high"), [(True, 0, 40), (0.25, 30, 50), (False, 40, 40), (0, 40, 40)])
def test_a_loss_waits_as_a_retry_would(rows: Rows, jitter: float, low: float, high: float) -> None:
    """`celeriac.backoff` draws from the same range as `Backoff.seconds`."""
    given = {"base": 10, "maximum": 1000, "jitter": jitter}
    query = "SELECT celeriac.backoff(CAST(:b AS jsonb), 2) FROM generate_series(1, 500)"
    drawn = [delay for (delay,) in rows(query, b=json.dumps(given))]
    backoff = Backoff(base=10, maximum=1000, jitter=jitter)
    edges = backoff.seconds(2, 0.0), backoff.seconds(2, 1.0)
    assert edges == (low, high)
    assert low <= min(drawn) <= low + (high - low) / 5
    assert high - (high - low) / 5 <= max(drawn) <= high


def test_a_backoff_in_sql_is_bounded_whatever_it_is_asked(rows: Rows) -> None:
    given = json.dumps({"base": 1e9, "maximum": 60, "jitter": 0})
    assert rows.one("SELECT celeriac.backoff(CAST(:b AS jsonb), 2000000)", b=given) == 60
    assert rows.one("SELECT celeriac.backoff(CAST('null' AS jsonb), 0)") is None


def test_while_a_lost_task_waits_the_next_of_its_lock_runs(database: Database, rows: Rows) -> None:
    declare(rows, backoff=BACKOFF)
    (task,) = running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    freed(database, held(task))
    assert claimed(database, n=2)[0] == [following.id]


def test_recover_stale_tasks_gives_way_to_the_next_of_the_lock_too(database: Database, rows: Rows) -> None:
    declare(rows, backoff=BACKOFF)
    running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    rows(SILENT)
    assert rows.one("SELECT recover_stale_tasks()") == 1
    assert looked(database) == ["work"]
    assert claimed(database, n=2)[0] == [following.id]


def test_a_task_that_fails_of_its_losses_gives_the_lead_to_the_next(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    rows("UPDATE worker_tasks SET losses = 2 WHERE id = :i", i=task.id)
    freed(database, held(task))
    assert claimed(database, n=2)[0] == [following.id]


def test_the_rows_of_one_process_are_its_own(database: Database, rows: Rows) -> None:
    mine, others = running(database, new_task(), new_task()), running(database, new_task())
    enqueued(database, new_task())
    claimed(database)
    rows("UPDATE tickets SET worker_pid = 2 WHERE token = CAST(:t AS uuid)", t=others[0].token)
    with database.statement() as connection:
        assert release.of_process(connection, WORKER, PID) == held(*mine)
        assert sorted(release.of_process(connection, WORKER, None)) == held(*mine, *others)
        assert release.of_process(connection, "another worker", None) == []
        assert lease.running(connection, mine[0].id, WORKER, PID) == mine[0]
        assert lease.running(connection, others[0].id, WORKER, PID) is None
        assert lease.running(connection, mine[0].id, "another worker", PID) is None
