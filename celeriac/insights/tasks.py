"""One task: what it is, what happened to it, and why it is not running yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import Unknown
from celeriac.store.states import CLAIMED, PENDING, WAITS_FOR_ACCOUNT, WAITS_FOR_LOCK, WAITS_FOR_MEMBERS, WAITS_FOR_TIME

TASK = text("""
SELECT t.*, extract(epoch FROM statement_timestamp() - t.last_heartbeat_at)::double precision AS heartbeat_age,
    coalesce(CAST(r.definition ->> 'stale_after' AS double precision), 600) AS stale_after,
    coalesce(r.paused, false) AS role_paused, coalesce(p.paused, false) AS account_paused, p.cap AS account_cap,
    (SELECT l.rate_limit FROM celeriac.role_limits l WHERE l.role = t.role AND celeriac.tokens(l) < 1) AS rate_reached
FROM celeriac.worker_tasks t LEFT JOIN celeriac.roles r ON r.role = t.role
LEFT JOIN celeriac.account_policies p ON p.account = t.account
WHERE t.id = CAST(CAST(:id AS text) AS bigint)
""")

MEMBERS = text("""
SELECT count(*) AS n, max(id) AS newest FROM (
    SELECT id FROM celeriac.tasks WHERE barrier = (SELECT barrier FROM celeriac.barriers WHERE id = :id)
    ORDER BY -id LIMIT :most) AS members
""")

ID_OF = text("""
SELECT id FROM celeriac.tasks WHERE task_id = :task_id
UNION ALL
SELECT id FROM celeriac.history WHERE task_id = :task_id
LIMIT 1
""")

# BETWEEN: were `task` said to be one value, an order by id alone would be as good, which passes by all other tasks'.
EVENTS = text("""
SELECT id, at, kind, from_status, to_status, by, why FROM celeriac.task_events
WHERE task BETWEEN :id AND :id ORDER BY task DESC, id DESC LIMIT :most
""")

HEAD = text("""
SELECT t.id, t.role, t.status, CASE WHEN r.paused THEN ', whose role is paused' ELSE '' END AS paused
FROM celeriac.locks l JOIN celeriac.unfinished t ON t.id = l.head LEFT JOIN celeriac.roles r ON r.role = t.role
WHERE l.lock_key = :lock_key
""")

ACTIVE_UNDER = text("""
SELECT t.* FROM celeriac.locks l JOIN celeriac.unfinished t ON t.id = l.head
WHERE l.lock_key = :lock_key AND t.status IN ('claimed', 'running')
""")

UNFINISHED = text("""
SELECT * FROM celeriac.unfinished WHERE id = (
    SELECT id FROM celeriac.tasks WHERE role = :role AND unique_key = :unique_key)
""")

# Counting stops at :most.
AHEAD_OF_LOCK = text("""
SELECT count(*) FROM (
    SELECT FROM celeriac.behind
    WHERE lock_key = :lock_key AND priority >= :priority
        AND (-priority, due_at, id) < (-:priority, :scheduled_for, :id)
    ORDER BY priority DESC, due_at, id LIMIT :most) AS ahead
""")

AHEAD_IN_ACCOUNT = text("""
SELECT count(*) FROM (
    SELECT FROM celeriac.ready
    WHERE role = :role AND account = :account AND priority >= :priority
        AND (-priority, due_at, id) < (-:priority, :scheduled_for, :id)
    ORDER BY priority DESC, due_at, id LIMIT :most) AS ahead
""")

LAST_PASS = text("SELECT why_nothing FROM celeriac.passes WHERE role = :role ORDER BY id DESC LIMIT 1")

LAST_COMPLETION = text("""
SELECT id, task_id, completed_at, extract(epoch FROM completed_at - started_at)::double precision AS seconds
FROM (SELECT id, task_id, status, started_at, completed_at FROM celeriac.history
    WHERE role = :role ORDER BY completed_at DESC LIMIT :looks_at
) AS finished WHERE status = 'completed' LIMIT 1
""")

#: Counting what is ahead stops here; a history has at most so many events.
MOST = 1_000

#: Finished tasks looked at for the last success: the last one, which it mostly is, and only then more of them. Without
#: statistics, Postgres would sort the whole history for more than one.
LOOKS_AT = (1, 10_000)


@dataclass(frozen=True, slots=True)
class History:
    """`ahead`: tasks of its account (or of its lock's line) that go first, at most 1,000; None if it does not wait in
    line. `why`: what it waits for, in words."""

    task: dict[str, Any]
    events: list[dict[str, Any]]
    ahead: int | None
    why: str | None


def find(connection: Connection, given: int | str) -> dict[str, Any] | None:
    """A task by its row's id or by its task_id, if there is one (still). A text of digits is an id, unless a task_id is
    the same."""
    task = None
    if isinstance(given, str) and "\x00" not in given:
        task = connection.execute(ID_OF, {"task_id": given}).scalar_one_or_none()
    task = _row_id(given) if task is None else task
    row = None if task is None else connection.execute(TASK, {"id": task}).mappings().one_or_none()
    return None if row is None else dict(row)


def _row_id(given: int | str) -> int | None:
    digits = str(given)
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(2**63))
    return int(digits) if is_number and int(digits) < 2**63 else None


def get(connection: Connection, given: int | str) -> dict[str, Any]:
    """As `find`. Raises Unknown."""
    task = find(connection, given)
    if task is None:
        raise Unknown(f"there is no task {given!r}; a finished one may be pruned")
    return task


def history(connection: Connection, given: int | str) -> History:
    """Of the task `find` finds. Raises Unknown."""
    task = get(connection, given)
    return History(task, events(connection, task["id"]), *_waits(connection, task))


def events(connection: Connection, task: int) -> list[dict[str, Any]]:
    """What happened to the task of this id, which may be gone: the last 1,000, in order."""
    found = connection.execute(EVENTS, {"id": task, "most": MOST}).mappings()
    return [dict(event) for event in found][::-1]


def active_under(connection: Connection, lock_key: str) -> dict[str, Any] | None:
    """The task that is claimed or running under a lock, of whatever role; there is at most one."""
    row = connection.execute(ACTIVE_UNDER, {"lock_key": lock_key}).mappings().one_or_none()
    return None if row is None else dict(row)


def unfinished(connection: Connection, role: str, unique_key: str) -> dict[str, Any] | None:
    """The role's task that is waiting or active under a unique key; there is at most one."""
    given = {"role": role, "unique_key": unique_key}
    row = connection.execute(UNFINISHED, given).mappings().one_or_none()
    return None if row is None else dict(row)


def last_completion(connection: Connection, role: str) -> dict[str, Any] | None:
    """The role's last success still kept, among its last 10,000 finished tasks."""
    for looks_at in LOOKS_AT:
        row = connection.execute(LAST_COMPLETION, {"role": role, "looks_at": looks_at}).mappings().one_or_none()
        if row is not None:
            return dict(row)
    return None


def _waits(connection: Connection, task: dict[str, Any]) -> tuple[int | None, str | None]:
    if task["status"] == CLAIMED:
        return None, "it is claimed: its ticket waits in Redis for a worker of its queue"
    if task["status"] != PENDING:
        return None, None
    if task["waits_for"] == WAITS_FOR_TIME:
        return None, "it is not due yet"
    if task["waits_for"] == WAITS_FOR_ACCOUNT:
        return None, _shut(task)
    if task["waits_for"] == WAITS_FOR_MEMBERS:
        return _ahead_of_body(connection, task)
    if task["waits_for"] == WAITS_FOR_LOCK:
        return _ahead(connection, task, AHEAD_OF_LOCK), _behind(connection, task)
    return _ahead(connection, task, AHEAD_IN_ACCOUNT), _ready(connection, task)


def _ahead(connection: Connection, task: dict[str, Any], statement: Any) -> int:
    names = ("id", "role", "account", "lock_key", "priority", "scheduled_for")
    return int(connection.execute(statement, {name: task[name] for name in names} | {"most": MOST}).scalar_one())


def _ahead_of_body(connection: Connection, task: dict[str, Any]) -> tuple[int, str]:
    found = connection.execute(MEMBERS, {"id": task["id"], "most": MOST}).one()
    if not found.n:
        return 0, "all it waits for has finished: a worker's next look lets it through"
    return found.n, f"{found.n} of its members have not finished, task {found.newest} for one"


def _behind(connection: Connection, task: dict[str, Any]) -> str:
    head = connection.execute(HEAD, {"lock_key": task["lock_key"]}).one_or_none()
    if head is None:
        return f"its lock key {task['lock_key']!r} has no head: a worker's next look gives it one"
    return f"task {head.id} ({head.role}{head.paused}) is {head.status} and has its lock {task['lock_key']!r}"


def _shut(task: dict[str, Any]) -> str:
    if task["account_paused"]:
        return "its account is paused"
    if task["account_cap"] == 0:
        return "its account may have nothing at once: its cap is 0"
    return "its account was resumed: a worker's next look brings it back"


def _ready(connection: Connection, task: dict[str, Any]) -> str:
    if task["role_paused"]:
        return "its role is paused"
    if task["account_paused"]:
        return "its account is paused"
    if task["rate_reached"]:
        return f"as many tasks of its role have begun as its rate lets: {task['rate_reached']}"
    if why := connection.execute(LAST_PASS, {"role": task["role"]}).scalar_one_or_none():
        return f"the role's last pass claimed nothing: {why}"
    capped = "" if task["account_cap"] is None else f"; its account may have {task['account_cap']} at once"
    return f"it is ready, and the role's next pass with room may claim it{capped}"
