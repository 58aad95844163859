"""Lock keys and unique keys: who holds each, since when, and who waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.insights.tasks.counting import Count
from celeriac.store.states import CLAIMED, PENDING, RUNNING

#: Maximum number of tasks waiting for a key that are counted.
CAP = 1_000

MOST = 1_000

#: Seconds for which a key may be free while tasks wait for it, before it counts as stuck.
FREE = 60.0

# INVARIANT: each step is one descent to the next key somebody waits for.
WAITED_FOR = text("""
WITH RECURSIVE walk AS (
    (SELECT lock_key FROM celeriac.behind ORDER BY lock_key LIMIT 1)
    UNION ALL
    SELECT next.lock_key FROM walk, LATERAL (
        SELECT lock_key FROM celeriac.behind WHERE lock_key > walk.lock_key ORDER BY lock_key LIMIT 1) AS next
)
SELECT lock_key FROM walk LIMIT :most
""")

# Held tasks are looked up one by one: there are no more than the windows allow.
HELD = text("""
SELECT t.lock_key FROM (
    SELECT id, claimed_at FROM celeriac.tickets, unnest(ids) AS id ORDER BY claimed_at, id) AS held, LATERAL (
    SELECT lock_key FROM celeriac.tasks WHERE id = held.id AND lock_key IS NOT NULL LIMIT 1) AS t
ORDER BY held.claimed_at, held.id LIMIT :most
""")

LOCKS = text("""
SELECT wanted.lock_key, t.id AS task, t.task_id, t.role, t.account, waiting.n, waiting.oldest,
    CAST(extract(epoch FROM statement_timestamp() - waiting.oldest) AS double precision) AS oldest_wait_seconds,
    coalesce(CAST(r.definition ->> 'stale_after' AS double precision), 600) AS stale_after
FROM unnest(CAST(:keys AS text[])) AS wanted (lock_key)
LEFT JOIN LATERAL (
    SELECT task.id, task.task_id, task.role, task.account FROM celeriac.locks l, LATERAL (
        SELECT id, task_id, role, account FROM celeriac.tasks WHERE id = l.head LIMIT 1) AS task
    WHERE l.lock_key = wanted.lock_key LIMIT 1) AS t ON true
LEFT JOIN celeriac.roles r ON r.role = t.role
CROSS JOIN LATERAL (
    SELECT count(*) AS n, min(due_at) AS oldest FROM (
        SELECT due_at FROM celeriac.behind WHERE lock_key = wanted.lock_key
        ORDER BY priority DESC, due_at, id LIMIT :cap) AS first_ones
) AS waiting
""")

# The statement scans the tickets once, of which there are few, instead of once for each key.
HOLDERS = text("""
SELECT i.id, k.worker_id,
    CAST(extract(epoch FROM statement_timestamp() - coalesce(k.started_at, k.claimed_at)) AS double precision)
        AS held_seconds,
    CAST(extract(epoch FROM statement_timestamp() - celeriac.heard_at(k.worker_id, k.worker_pid, k.heartbeat_at))
        AS double precision) AS heartbeat_age
FROM celeriac.tickets k, unnest(k.ids) AS i (id)
WHERE k.ids && CAST(:heads AS bigint[]) AND i.id = ANY (CAST(:heads AS bigint[]))
""")

QUEUE = text("""
SELECT b.id, t.task_id, b.role, b.account, b.priority, b.due_at,
    CAST(extract(epoch FROM statement_timestamp() - b.due_at) AS double precision) AS waits_seconds
FROM (
    SELECT * FROM celeriac.behind WHERE lock_key = :lock_key ORDER BY priority DESC, due_at, id LIMIT :most
) AS b, LATERAL (SELECT task_id FROM celeriac.tasks WHERE id = b.id LIMIT 1) AS t
ORDER BY b.priority DESC, b.due_at, b.id
""")

_TAKEN = "SELECT role, unique_key, id, task_id, account, created_at, scheduled_for FROM celeriac.tasks"

TAKEN = text(f"""{_TAKEN}
WHERE unique_key IS NOT NULL
    AND (role, unique_key) > (coalesce(CAST(:role AS text), ''), coalesce(CAST(:key AS text), ''))
ORDER BY role, unique_key LIMIT :most
""")

TAKEN_OF_ROLE = text(f"""{_TAKEN}
WHERE role = :role AND unique_key >= coalesce(CAST(:key AS text), '') AND unique_key IS DISTINCT FROM :key
ORDER BY role, unique_key LIMIT :most
""")


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock key that is held, or waited for.

    `task`: the lock holder, None if the key is free and a worker's next check gives it to a waiting task. `status`: of
    that task; a pending one has the key and has not been claimed. `held_seconds`: since it began, or was claimed.
    `is_stale`: its worker has been silent for longer than its role allows. `waiting`: how many tasks wait for the key;
    `oldest_wait_seconds`: the longest wait among those counted.
    """

    lock_key: str
    task: int | None
    task_id: str | None
    role: str | None
    account: str | None
    status: str | None
    worker_id: str | None
    held_seconds: float | None
    heartbeat_age: float | None
    is_stale: bool
    waiting: Count
    oldest_wait_seconds: float | None


@dataclass(frozen=True, slots=True)
class Locks:
    """Lock keys. `locks`: those with most tasks waiting first, then held longest. `is_all` False: there are more."""

    locks: list[Lock]
    is_all: bool


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A task that waits for a lock key. `place`: 1 is next. `waits_seconds`: since it was due."""

    place: int
    id: int
    task_id: str
    role: str
    account: str
    priority: int
    due_at: datetime
    waits_seconds: float


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A role's key, and the unfinished task that has it."""

    role: str
    unique_key: str
    task: int
    task_id: str
    account: str
    status: str
    created_at: datetime
    due_at: datetime


def locks(connection: Connection, *, limit: int = 100) -> Locks:
    """Return keys waited for, by name, and keys held, first claimed first: at most `limit` of each kind."""
    _refuse(limit)
    by_kind = {
        statement: list(connection.execute(statement, {"most": limit + 1}).scalars())
        for statement in (WAITED_FOR, HELD)
    }
    keys = list(dict.fromkeys(key for some in by_kind.values() for key in some[:limit]))
    is_all = all(len(some) <= limit for some in by_kind.values())
    order = sorted(_locks(connection, keys), key=lambda lock: (-lock.waiting.n, -(lock.held_seconds or 0)))
    return Locks(order, is_all)


def stuck(connection: Connection, longer_than: float, *, looked_at: int = 200) -> list[Lock]:
    """Return keys whose waiting tasks do not move, those with most of these first.

    A key is stuck if its holder has run for longer than so many seconds, if the holder's worker fell silent, or if
    nobody has had the key for `FREE`. Only the keys held longest are read, and the first by name among those that tasks
    wait for: a fixed number of each.
    """
    kinds = (HELD, WAITED_FOR)
    keys = list(dict.fromkeys(key for kind in kinds for key in connection.execute(kind, {"most": looked_at}).scalars()))
    return sorted((one for one in _locks(connection, keys) if _is_stuck(one, longer_than)), key=lambda o: -o.waiting.n)


def _is_stuck(one: Lock, longer_than: float) -> bool:
    if one.oldest_wait_seconds is None:
        return False
    if one.task is None:
        return one.oldest_wait_seconds > FREE
    return one.is_stale or (one.held_seconds or 0.0) > longer_than


def lock(connection: Connection, lock_key: str) -> Lock:
    """Return one lock key, also if nobody holds it or waits for it."""
    return _locks(connection, [lock_key])[0]


def queue_of(connection: Connection, lock_key: str, *, limit: int = 100) -> list[WaitingTask]:
    """Return the tasks that wait for the key, in the order in which they get it."""
    _refuse(limit)
    rows = connection.execute(QUEUE, {"lock_key": lock_key, "most": limit}).mappings()
    return [WaitingTask(place=place, **row) for place, row in enumerate(rows, start=1)]


def _locks(connection: Connection, keys: list[str]) -> list[Lock]:
    rows = connection.execute(LOCKS, {"keys": keys, "cap": CAP + 1}).all()
    heads = [row.task for row in rows if row.task is not None]
    holders = {row.id: row for row in connection.execute(HOLDERS, {"heads": heads})}
    return [_lock(row, holders.get(row.task)) for row in rows]


def _lock(row: Any, holder: Any) -> Lock:
    status = None if row.task is None else PENDING
    if holder is not None:
        status = RUNNING if holder.worker_id else CLAIMED
    age = holder.heartbeat_age if holder else None
    return Lock(
        lock_key=row.lock_key, task=row.task, task_id=row.task_id, role=row.role, account=row.account, status=status,
        worker_id=holder.worker_id if holder else None, held_seconds=holder.held_seconds if holder else None,
        heartbeat_age=age, is_stale=age is not None and age > row.stale_after,
        waiting=Count.up_to(CAP, row.n), oldest_wait_seconds=row.oldest_wait_seconds,
    )  # fmt: skip


def _refuse(limit: int) -> None:
    if not 1 <= limit <= MOST:
        raise BadValue(f"limit={limit}: give 1 to {MOST:,}")


def unique_keys(
    connection: Connection, role: str | None = None, *, limit: int = 100, after: tuple[str, str] | None = None
) -> list[UniqueKey]:
    """Return the taken keys by role and key; `after`: a role and a key, to return those that follow."""
    if not 1 <= limit <= MOST + 1:
        raise BadValue(f"limit={limit}: give 1 to {MOST:,}")
    of, key = after or (None, None)
    statement, parameters = (TAKEN, {"role": of}) if role is None else (TAKEN_OF_ROLE, {"role": role})
    rows = connection.execute(statement, parameters | {"key": key, "most": limit}).all()
    holders = connection.execute(HOLDERS, {"heads": [row.id for row in rows]})
    held = {row.id: RUNNING if row.worker_id else CLAIMED for row in holders}
    return [
        UniqueKey(
            row.role, row.unique_key, row.id, row.task_id, row.account, held.get(row.id, PENDING), row.created_at,
            row.scheduled_for,
        )
        for row in rows
    ]  # fmt: skip
