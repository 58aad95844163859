"""One task: its row, its events, its handler's log, and what is left of it. `why` explains why it has not started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, text

from celeriac.errors import BadValue, Unknown
from celeriac.insights.tasks.redaction import of_role, of_roles, redacted, without_calls
from celeriac.store.plans import lookups
from celeriac.store.role_names import is_built_in

TASK = text("""
SELECT t.*, extract(epoch FROM statement_timestamp() - t.last_heartbeat_at)::double precision AS heartbeat_age,
    coalesce(CAST(r.definition ->> 'stale_after' AS double precision), 600) AS stale_after,
    coalesce(r.paused, false) AS role_paused, coalesce(p.paused, false) AS account_paused, p.cap AS account_cap,
    (SELECT l.rate_limit FROM celeriac.role_limits l WHERE l.role = t.role AND celeriac.tokens(l) < 1) AS rate_reached,
    r.definition -> 'sensitive' AS sensitive, r.parameters
FROM celeriac.tasks_with(ARRAY[CAST(CAST(:id AS text) AS bigint)]) t LEFT JOIN celeriac.roles r ON r.role = t.role
LEFT JOIN celeriac.account_policies p ON p.account = t.account
""")

CALL = text("SELECT args, kwargs FROM celeriac.tasks_with(ARRAY[CAST(:id AS bigint)])")

ID_OF = text("""
SELECT id FROM celeriac.tasks WHERE task_id = :task_id
UNION ALL
SELECT id FROM celeriac.history_named(ARRAY[CAST(:task_id AS text)])
LIMIT 1
""")

ROWS_OF = text("""
SELECT id, task_id FROM celeriac.tasks WHERE task_id = ANY (CAST(:given AS text[]))
UNION ALL SELECT id, task_id FROM celeriac.history_named(CAST(:given AS text[]))
UNION ALL SELECT id, NULL FROM celeriac.tasks WHERE id = ANY (CAST(:ids AS bigint[]))
UNION ALL SELECT id, NULL FROM celeriac.history_with(CAST(:ids AS bigint[]))
""")

# BETWEEN: with "= :id" Postgres could walk an index by id alone, past the events of all other tasks.
EVENTS = text("""
SELECT id, at, kind, from_status, to_status, by, why FROM celeriac.task_events
WHERE task BETWEEN :id AND :id ORDER BY task DESC, id DESC LIMIT :most
""")

ACTIVE_UNDER = text("""
SELECT t.* FROM celeriac.unfinished t
WHERE t.id = (SELECT head FROM celeriac.locks WHERE lock_key = :lock_key) AND t.status IN ('claimed', 'running')
""")

UNFINISHED = text("""
SELECT * FROM celeriac.unfinished WHERE id = (
    SELECT id FROM celeriac.tasks WHERE role = :role AND unique_key = :unique_key)
""")

LAST_COMPLETION = text("""
SELECT id, task_id, completed_at, extract(epoch FROM completed_at - started_at)::double precision AS seconds
FROM celeriac.last_ended(:role, :looks_at) WHERE status = 'completed' ORDER BY completed_at DESC, id DESC LIMIT 1
""")

#: Most events, and most log lines, that are returned.
MOST = 1_000

#: Numbers of finished tasks that are read for the last success: first the last task, which usually is a success, then
#: more. Without statistics Postgres would sort the whole history for more than one.
LOOKS_AT = (1, 100, 10_000)

# BETWEEN: see `EVENTS`.
ROLE_OF = text("""
SELECT role FROM celeriac.task_events WHERE task BETWEEN :id AND :id ORDER BY task DESC, id DESC LIMIT 1
""")

KEEP = text("SELECT definition -> 'keep' AS keep FROM celeriac.roles WHERE role = :role")

# BETWEEN: see `EVENTS`.
LOG = text("""
SELECT id, attempt, at, level, line FROM celeriac.task_logs
WHERE task BETWEEN :id AND :id ORDER BY task DESC, id DESC LIMIT :most
""")


@dataclass(frozen=True, slots=True)
class Gone:
    """A task's remains. `keep`: seconds its role keeps finished tasks, "forever", or None: no successes are kept."""

    role: str
    keep: float | Literal["forever"] | None
    events: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TaskLogLine:
    id: int
    attempt: int
    at: datetime
    level: str
    line: str


def find(connection: Connection, identifier: int | str) -> dict[str, Any] | None:
    """Return a task by its row's number or by its task_id, None if there is none (any more).

    A number alone is a row's; `id=17` says so explicitly, `task_id=17` is the task of that id. Raises BadValue for a
    number that is one task's row and another's id.
    """
    row, task_id = _named(identifier)
    task = None if row is None else _read(connection, row)
    if task_id is None or "\x00" in task_id or (task is not None and task["task_id"] == task_id):
        return task
    other = connection.execute(ID_OF, {"task_id": task_id}).scalar_one_or_none()
    if task is not None and other is not None:
        raise _means_two(task_id, task["id"], other)
    return task if other is None else _read(connection, other)


def row_of(connection: Connection, identifier: int | str) -> int:
    """Return the row's number of the task that `find` returns. Raises Unknown, and BadValue as `find` does."""
    number: int = get(connection, identifier)["id"]
    return number


def _named(identifier: int | str) -> tuple[int | None, str | None]:
    """Return the row's number and the task_id it may mean; `id=` and `task_id=` exclude the other."""
    if isinstance(identifier, int):
        return (identifier if 0 <= identifier < 2**63 else None), None
    column, equals, value = identifier.partition("=")
    if equals and column == "task_id":
        return None, value
    if equals and column == "id" and (row := _row_id(value)) is not None:
        return row, None
    return _row_id(identifier), identifier


def _means_two(number: str, row: int, other: int) -> BadValue:
    return BadValue(
        f"task={number}: this is the number of task {row} and the task_id of task {other}; write id={number} or "
        f"task_id={number}"
    )


def _read(connection: Connection, task: int) -> dict[str, Any] | None:
    """Read a task without the values that its role calls sensitive."""
    record = connection.execute(TASK, {"id": task}).mappings().one_or_none()
    if record is None:
        return None
    row = dict(record) | {"headers": without_calls(record["headers"])}
    return redacted(row, of_role(row.pop("sensitive"), row.pop("parameters")))


def call(connection: Connection, task: int) -> tuple[list[Any], dict[str, Any]]:
    """Return all arguments, by position and by name, for another task like it. Never show them. Raises Unknown."""
    row = connection.execute(CALL, {"id": task}).one_or_none()
    if row is None:
        raise Unknown(f"there is no task {task}; a finished one may be pruned")
    return row.args, row.kwargs


def _row_id(digits: str) -> int | None:
    """Return the number if it is written as Postgres writes it: 007 is no row's."""
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(2**63)) and str(int(digits)) == digits
    return int(digits) if is_number and int(digits) < 2**63 else None


def get(connection: Connection, identifier: int | str) -> dict[str, Any]:
    """Return the task that `find` finds. Raises Unknown."""
    task = find(connection, identifier)
    if task is None:
        raise Unknown(f"there is no task {identifier!r}; a finished one may be pruned")
    return task


def rows_of(connection: Connection, identifiers: Sequence[str]) -> dict[str, int]:
    """Return the row's number of each existing task, as `find` finds it. Raises BadValue as `find` does."""
    means = {one: _named(one) for one in identifiers}
    parameters = {
        "given": [task_id for _, task_id in means.values() if task_id is not None and "\x00" not in task_id],
        "ids": [row for row, _ in means.values() if row is not None],
    }
    with lookups(connection):
        rows = connection.execute(ROWS_OF, parameters).all()
    there = {row.id for row in rows if row.task_id is None}
    named = {row.task_id: row.id for row in rows if row.task_id is not None}
    numbers: dict[str, int] = {}
    for one, (row, task_id) in means.items():
        as_row, as_id = row if row in there else None, named.get(task_id or "")
        if as_row is not None and as_id not in (None, as_row):
            raise _means_two(one, as_row, as_id)
        if (number := as_id if as_row is None else as_row) is not None:
            numbers[one] = number
    return numbers


def events(connection: Connection, task: int) -> list[dict[str, Any]]:
    """Return the last 1,000 events of the task of this id, in order; the task itself may be gone."""
    rows = connection.execute(EVENTS, {"id": task, "most": MOST}).mappings()
    return [dict(event) for event in rows][::-1]


def active_under(connection: Connection, lock_key: str) -> dict[str, Any] | None:
    """Return the task that is claimed or running under a lock key, of any role; there is at most one."""
    return _shown(connection, connection.execute(ACTIVE_UNDER, {"lock_key": lock_key}).mappings().one_or_none())


def unfinished(connection: Connection, role: str, unique_key: str) -> dict[str, Any] | None:
    """Return the role's unfinished task under a unique key; there is at most one."""
    parameters = {"role": role, "unique_key": unique_key}
    return _shown(connection, connection.execute(UNFINISHED, parameters).mappings().one_or_none())


def _shown(connection: Connection, record: RowMapping | None) -> dict[str, Any] | None:
    """Return a task's row without the values its role calls sensitive."""
    if record is None:
        return None
    row = dict(record) | {"headers": without_calls(record["headers"])}
    return redacted(row, of_roles(connection, [row["role"]]).get(row["role"]))


def last_completion(connection: Connection, role: str) -> dict[str, Any] | None:
    """Return the role's last success still kept, among its last 10,000 finished tasks."""
    for looks_at in LOOKS_AT:
        row = connection.execute(LAST_COMPLETION, {"role": role, "looks_at": looks_at}).mappings().one_or_none()
        if row is not None:
            return dict(row)
    return None


def gone(connection: Connection, task: int, *, otherwise: float) -> Gone | None:
    """Return what is left of this task, or None. `otherwise`: seconds for which built-in roles' tasks are kept."""
    role = connection.execute(ROLE_OF, {"id": task}).scalar_one_or_none()
    if role is None:
        return None
    declared = connection.execute(KEEP, {"role": role}).one_or_none()
    unsaid: float | Literal["forever"] = otherwise if is_built_in(role) else "forever"
    return Gone(role, unsaid if declared is None else declared.keep, events(connection, task))


def log_of(connection: Connection, task: int) -> list[TaskLogLine]:
    """Return the last 1,000 lines, in order; the task itself may be gone."""
    return [TaskLogLine(*row) for row in connection.execute(LOG, {"id": task, "most": MOST})][::-1]
