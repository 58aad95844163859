"""What every commit leaves true of the rooms: whoever breaks it by hand, it is named."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from celeriac import Celeriac
from celeriac.cli import within_celery
from celeriac.cli.group import PROBLEM
from celeriac.dispatch import claim
from celeriac.dispatch.claim import Held
from celeriac.enqueue.insert import enqueue
from celeriac.run import start
from celeriac.store.connections import Database
from celeriac.store.invariants import violations
from tests.postgres.conftest import new_task
from tests.processes import Rows

TOKENS = [f"00000000-0000-4000-8000-00000000000{n}" for n in (1, 2)]

TASK = "(SELECT id FROM tasks WHERE task_id = '{}')"
READY, LATER, HEAD, BEHIND, PARKED, CLAIMED, RUNNING = (
    TASK.format(name) for name in ("ready", "later", "head", "behind", "parked", "claimed", "running")
)

#: How each is broken by hand, and what is then said, in which {…} stands for a task's id.
BROKEN = {
    "a task in no room": [
        (f"DELETE FROM ready WHERE id = {READY}", ["task {ready} is in no room"]),
        (f"DELETE FROM later WHERE id = {LATER}", ["task {later} is in no room"]),
        (f"DELETE FROM behind WHERE id = {BEHIND}", ["task {behind} is in no room"]),
        (f"DELETE FROM parked WHERE id = {PARKED}", ["task {parked} is in no room"]),
        (f"DELETE FROM tickets WHERE {CLAIMED} = ANY (ids)", ["task {claimed} is in no room"]),
    ],
    "a task in two rooms": [
        (f"INSERT INTO later SELECT role, account, scheduled_for, id FROM tasks WHERE id = {READY}",
         ["task {ready} is in later and ready"]),
        (f"INSERT INTO ready SELECT 1, role, account, priority, due_at, id FROM ready WHERE id = {READY}",
         ["task {ready} is in ready and ready"]),
        (f"INSERT INTO parked SELECT account, role, priority, scheduled_for, id FROM tasks WHERE id = {CLAIMED}",
         ["task {claimed} is in a ticket and parked"]),
        (f"UPDATE tickets SET ids = ids || {RUNNING}, accounts = accounts || accounts WHERE {CLAIMED} = ANY (ids)",
         ["task {running} is in a ticket and a ticket"]),
    ],
    "an entry without a task": [
        (f"DELETE FROM tasks WHERE id = {READY}", ["task {ready} is in ready, and is no unfinished task"]),
        (f"DELETE FROM tasks WHERE id = {LATER}", ["task {later} is in later, and is no unfinished task"]),
        (f"DELETE FROM tasks WHERE id = {BEHIND}", ["task {behind} is in behind, and is no unfinished task"]),
        (f"DELETE FROM tasks WHERE id = {PARKED}", ["task {parked} is in parked, and is no unfinished task"]),
        (f"DELETE FROM tasks WHERE id = {RUNNING}", ["task {running} is in a ticket, and is no unfinished task"]),
    ],
    "an empty ticket": [
        (f"""ALTER TABLE tickets DROP CONSTRAINT tickets_ids_check;
            INSERT INTO tickets (token, role, ids, accounts) VALUES ('{TOKENS[0][:-1]}9', 'work', '{{}}', '{{}}')""",
         [f"ticket {TOKENS[0][:-1]}9 is empty"]),
    ],
    "a lock whose head is none": [
        ("INSERT INTO locks VALUES ('other', 77)",
         ["lock key other has the head 77, which is neither ready nor in a ticket",
          "lock key other has the head 77, which is no unfinished task with that key"]),
        (f"INSERT INTO locks VALUES ('other', {READY})",
         ["lock key other has the head {ready}, which is no unfinished task with that key"]),
        (f"UPDATE locks SET head = {BEHIND}",
         ["lock key key has the head {behind}, which is neither ready nor in a ticket",
          "task {head} is ready or in a ticket, and not the head of its lock key key"]),
    ],
    "a keyed task that is not its key's head": [
        ("DELETE FROM locks", ["task {head} is ready or in a ticket, and not the head of its lock key key"]),
        (f"UPDATE tasks SET lock_key = 'mine' WHERE id = {RUNNING}",
         ["task {running} is ready or in a ticket, and not the head of its lock key mine"]),
    ],
    "a task that is over and is not": [
        (f"""INSERT INTO history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs,
                completed_at, retry_count, tries, max_rounds, losses, created_at)
            SELECT id, task_id, role, account, 'completed', 0, now(), '[]', '{{}}', now(), 0, 0, 1, 0, now()
            FROM tasks WHERE id = {READY}""",
         ["task {ready} is unfinished, and in the history"]),
    ],
    "an entry that says other than its task": [
        *((f"UPDATE tasks SET {change} WHERE id = {READY}", ["ready has other values of task {ready} than its row"])
          for change in ("role = 'x'", "account = 'x'", "priority = 9", "scheduled_for = 'epoch'")),
        *((f"UPDATE tasks SET {change} WHERE id = {LATER}", ["later has other values of task {later} than its row"])
          for change in ("role = 'x'", "account = 'x'", "scheduled_for = 'epoch'")),
        *((f"UPDATE tasks SET {change} WHERE id = {BEHIND}", ["behind has other values of task {behind} than its row"])
          for change in ("role = 'x'", "account = 'x'", "priority = 9", "scheduled_for = 'epoch'", "lock_key = 'x'",
                         "lock_key = NULL")),
        *((f"UPDATE tasks SET {change} WHERE id = {PARKED}", ["parked has other values of task {parked} than its row"])
          for change in ("role = 'x'", "account = 'x'", "priority = 9", "scheduled_for = 'epoch'")),
        *((f"UPDATE tasks SET {change} WHERE id = {RUNNING}",
           [f"ticket {TOKENS[1]} has other values of task {{running}} than its row"])
          for change in ("role = 'x'", "account = 'x'")),
    ],
}  # fmt: skip


def cases() -> list[object]:
    return [
        pytest.param(statement, said, id=f"{name}, {n}")
        for name, some in BROKEN.items()
        for n, (statement, said) in enumerate(some, start=1)
    ]


@pytest.fixture
def ids(database: Database, rows: Rows) -> dict[str, int]:
    """A task in each room, by its name."""
    with database.transaction() as connection:
        enqueue(connection, [new_task(task_id=name, account="a") for name in ("claimed", "running")])
        taken = claim.claim(connection, "work", {"a": 2})
        claim.hold(connection, "work", [Held(token, [task]) for token, task in zip(TOKENS, taken, strict=True)])
        start.start(connection, "work", [taken[1].id], TOKENS[1], worker_id="w", pid=1)
    with database.transaction() as connection:
        enqueue(connection, [new_task(task_id="ready"), new_task(task_id="later", delay=60.0)])
        enqueue(connection, [new_task(task_id="head", lock_key="key")])
    with database.transaction() as connection:
        enqueue(connection, [new_task(task_id="behind", lock_key="key")])
    rows("INSERT INTO worker_tasks (task_id, role, account, waits_for) VALUES ('parked', 'work', 'shut', 'account')")
    return {str(name): int(task) for name, task in rows("SELECT task_id, id FROM tasks")}


def found(database: Database) -> list[str]:
    with database.statement() as connection:
        return violations(connection)


def test_nothing_is_wrong_with_a_database_in_order(database: Database, ids: dict[str, int], rows: Rows) -> None:
    assert set(ids) == {"ready", "later", "head", "behind", "parked", "claimed", "running"}
    assert rows("SELECT lock_key, head FROM locks") == [("key", ids["head"])]
    assert found(database) == []


@pytest.mark.breaks_invariants
@pytest.mark.parametrize(("statement", "said"), cases())
def test_whatever_is_broken_by_hand_is_named(
    database: Database, ids: dict[str, int], rows: Rows, statement: str, said: list[str]
) -> None:
    rows(statement)
    assert sorted(found(database)) == sorted(line.format(**ids) for line in said)


@pytest.mark.breaks_invariants
def test_a_deep_check_tells_what_is_broken_and_a_plain_one_does_not_look(
    app: Celeriac, ids: dict[str, int], rows: Rows
) -> None:
    def check(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(within_celery, ["check", *options], obj=SimpleNamespace(app=app))
        return done.exit_code, done.stderr

    assert check("--deep") == (0, "")
    rows(f"DELETE FROM ready WHERE id = {READY}")
    assert check() == (0, "")
    assert check("--deep") == (PROBLEM, f"task {ids['ready']} is in no room\n")
