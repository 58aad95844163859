"""The facts that a task's start depends on: its role, account, line and workers. Each is read when first needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from sqlalchemy import Connection, Row, TextClause, text

from celeriac.insights.fairness import rounds, shares
from celeriac.insights.fleet.resources import SHARES_PROCESS
from celeriac.insights.why import lines
from celeriac.store.role_names import lane_of
from celeriac.store.states import GONE, NO_TICK, PENDING, RUNNING, WAITS_FOR_LOCK, WAITS_FOR_MEMBERS

STANDING = text("""
SELECT statement_timestamp() AS now, r.role IS NOT NULL AS is_known,
    EXISTS (SELECT FROM celeriac.roles WHERE role IN (asked.role, asked.lane) AND paused) AS is_paused,
    coalesce(nullif(split_part(asked.lane, ',', 2), ''), r.definition ->> 'queue', asked.role) AS queue,
    coalesce(CASE WHEN r.definition ->> 'window_by_measure' = 'true'
        THEN (SELECT size FROM celeriac.current_window(asked.lane))
        ELSE CAST(r.definition ->> 'window' AS integer) END, 2000) AS size,
    coalesce(CAST(r.definition ->> 'batch_size' AS integer), 1000) AS batch_size,
    coalesce(CAST(r.definition ->> 'prompt' AS boolean), true) AS prompt,
    coalesce(CAST(r.definition ->> 'every' AS double precision), 30) AS every,
    coalesce(r.definition ->> 'chunk', 'auto') = 'auto' AS is_measured, r.definition ->> 'enabled_by' AS enabled_by,
    coalesce(p.paused, false) AS account_paused, p.cap, coalesce(p.weight, 1) AS weight,
    l.rate_limit, CASE WHEN l.rate_limit IS NOT NULL THEN celeriac.tokens(l) END AS tokens,
    celeriac.per_second(l.rate_limit) AS per_second,
    coalesce(b.cursor, '') AS cursor, b.seconds_per_task, s.id AS last_pass, s.last_at, s.by AS last_by, s.why_nothing
FROM (SELECT CAST(:lane AS text) AS lane, celeriac.role_of(:lane) AS role, CAST(:account AS text) AS account) AS asked
LEFT JOIN celeriac.roles r ON r.role = asked.role
LEFT JOIN celeriac.account_policies p ON p.account = asked.account
LEFT JOIN celeriac.role_limits l ON l.role = asked.role
LEFT JOIN celeriac.batchers b ON b.role = asked.lane
LEFT JOIN LATERAL (SELECT * FROM celeriac.passes WHERE id = b.last_pass LIMIT 1) AS s ON true
""")

HOLDING = text("""
WITH held AS MATERIALIZED (
    SELECT ids, accounts, worker_id, claimed_at FROM celeriac.tickets
    WHERE role = :lane AND claimed_at >= coalesce((SELECT held_since FROM celeriac.batcher(:lane)), '-infinity')
)
SELECT CAST(coalesce(sum(cardinality(ids)), 0) AS integer) AS n,
    CAST(coalesce(sum(cardinality(ids)) FILTER (WHERE worker_id IS NULL), 0) AS integer) AS unstarted,
    CAST(coalesce(sum(cardinality(ids)) FILTER (
        WHERE worker_id IS NULL AND claimed_at < CAST(:claimed_at AS timestamptz)), 0) AS integer) AS before,
    (SELECT coalesce(jsonb_object_agg(account, n), '{}') FROM (
        SELECT account, count(*) AS n FROM held, unnest(held.accounts) AS account GROUP BY account
    ) AS a) AS accounts
FROM held
""")

WORKERS = text(f"""
SELECT w.worker_id, w.status, w.concurrency,
    CAST(extract(epoch FROM statement_timestamp() - w.last_heartbeat_at) AS double precision) AS heartbeat_age,
    coalesce(w.resources ->> 'is_backing_off', '') = 'true' AS is_backing_off,
    w.resources ->> 'backoff_reason' AS backoff_reason,
    (SELECT CAST(coalesce(sum(CASE WHEN {SHARES_PROCESS} THEN cardinality(ids) ELSE 1 END), 0) AS integer)
        FROM celeriac.tickets k WHERE k.worker_id = w.worker_id) AS busy
FROM celeriac.workers w WHERE w.queues ? :queue ORDER BY w.last_heartbeat_at DESC LIMIT :most
""")

BEAT = text("""
SELECT (SELECT CAST(extract(epoch FROM statement_timestamp() - max(last_tick_at)) AS double precision)
        FROM celeriac.beats) AS age,
    s.name, s.enabled AND s.quarantined IS NULL AS is_on, s.next_run_at
FROM (SELECT 1) AS one LEFT JOIN (
    SELECT * FROM celeriac.scheduled_jobs WHERE kind = 'pass' AND target = :role
    ORDER BY enabled DESC, quarantined NULLS FIRST, next_run_at LIMIT 1) AS s ON true
""")

HEAD = text("""
SELECT t.id, t.role, t.status, coalesce(r.paused, false) AS role_paused, t.worker_id, t.started_at, b.seconds_per_task,
    CAST(extract(epoch FROM statement_timestamp() - t.last_heartbeat_at) AS double precision) AS heartbeat_age,
    coalesce(CAST(r.definition ->> 'stale_after' AS double precision), 600) AS stale_after, w.status AS worker_status
FROM (SELECT * FROM celeriac.unfinished WHERE id = (
    SELECT head FROM celeriac.locks WHERE lock_key = :lock_key) LIMIT 1) AS t
LEFT JOIN celeriac.roles r ON r.role = t.role LEFT JOIN celeriac.batchers b ON b.role = celeriac.lane(t.role, t.queue)
LEFT JOIN celeriac.workers w ON w.worker_id = t.worker_id
""")

#: While a beat ticks no schedule is overdue for longer (seconds).
OVERDUE = 10.0


class Broker(Protocol):
    """A surface's view of Redis. `republish_after`: seconds until a ticket in no queue counts as lost."""

    @property
    def republish_after(self) -> float: ...

    @property
    def has_redis(self) -> bool:
        """Return whether there is a Redis at all."""

    def answers(self) -> bool:
        """Return whether Redis answers within a moment."""

    def has(self, queue: str, token: str) -> bool | None:
        """Return whether this ticket is in its queue; None if Redis does not answer."""

    def length(self, queue: str) -> int | None:
        """Return how many tickets are in the queue."""


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker that serves the queue. `busy`: tickets it runs, or tasks where its slots share a process."""

    worker_id: str
    status: str
    concurrency: int
    heartbeat_age: float
    is_backing_off: bool
    backoff_reason: str | None
    busy: int

    @property
    def is_there(self) -> bool:
        return self.status == "active" and self.heartbeat_age <= GONE

    @property
    def takes(self) -> bool:
        return self.is_there and not self.is_backing_off


def is_stale(head: Row[Any]) -> bool:
    """Return whether the lock holder runs on a worker that is silent, or gone: then the sweep frees it."""
    silent: bool = head.status == RUNNING and (
        head.heartbeat_age > min(head.stale_after, GONE) or head.worker_status == "stopped"
    )
    return silent


class Situation:
    """The situation of one unfinished task, a row as from `tasks.find`. `broker` None: Redis is not queried."""

    def __init__(self, connection: Connection, task: Mapping[str, Any], broker: Broker | None) -> None:
        self.connection = connection
        self.task = task
        self.broker = broker

    @property
    def lane(self) -> str:
        return lane_of(self.task["role"], self.task.get("queue"))

    @property
    def entry(self) -> Mapping[str, Any]:
        """The task with its lane in place of its role, as its entry in a line has it."""
        return {**self.task, "role": self.lane}

    @property
    def is_pending(self) -> bool:
        return bool(self.task["status"] == PENDING)

    @cached_property
    def of(self) -> Row[Any]:
        """The state of its role and its account."""
        return self._one(STANDING, lane=self.lane, account=self.task["account"])

    @property
    def now(self) -> datetime:
        """The database's time when the situation was first read."""
        now: datetime = self.of.now
        return now

    def since(self, then: datetime) -> float:
        """Return the seconds since then."""
        return (self.now - then).total_seconds()

    @property
    def is_expired(self) -> bool:
        expires = self.task["expires_at"]
        return expires is not None and self.since(expires) >= 0

    @property
    def waited(self) -> float:
        """Seconds since it was due and enqueued."""
        return self.since(max(self.task["scheduled_for"], self.task["created_at"]))

    @cached_property
    def held(self) -> Row[Any]:
        """The claimed or running tasks of its role: `n`, `unstarted`, those claimed `before` it, `accounts`."""
        return self._one(HOLDING, lane=self.lane, claimed_at=self.task["claimed_at"])

    @property
    def holding(self) -> int:
        """The number of tasks its account holds."""
        return int(self.held.accounts.get(self.task["account"], 0))

    @cached_property
    def workers(self) -> list[WorkerSeen]:
        """The workers of its queue, the last heard first."""
        rows = self.connection.execute(WORKERS, {"queue": self.of.queue, "most": lines.MOST})
        return [WorkerSeen(*row) for row in rows]

    @property
    def takers(self) -> list[WorkerSeen]:
        return [worker for worker in self.workers if worker.takes]

    @property
    def lookers(self) -> list[WorkerSeen]:
        """Workers that run passes of a prompt role, within a second of a slot becoming free (`dispatch/room.py`)."""
        is_full = self.held.n >= self.of.size
        return [] if is_full or not self.of.prompt else self.takers

    @cached_property
    def beat(self) -> Row[Any]:
        """Beat: `age`, seconds since any last ticked; `name`, `is_on`, `next_run_at` of the schedule of the passes."""
        return self._one(BEAT, role=self.task["role"])

    @property
    def beat_passes(self) -> bool:
        """Return whether a beat runs the role's passes. Another app's beat ticks too, but this schedule is overdue."""
        age = self.beat.age
        return bool(self.beat.is_on) and age is not None and age <= NO_TICK and self.pass_overdue <= OVERDUE

    @property
    def is_swept(self) -> bool:
        """Return whether somebody runs the sweeps: a beat, or else a worker."""
        beat = self.beat.age is not None and self.beat.age <= NO_TICK
        return beat or any(worker.is_there for worker in self.workers)

    @property
    def pass_overdue(self) -> float:
        """Seconds by which the role's next pass is overdue."""
        return max(0.0, self.since(self.beat.next_run_at))

    @cached_property
    def head(self) -> Row[Any] | None:
        """The lock holder of its key, perhaps the task itself."""
        return self.connection.execute(HEAD, {"lock_key": self.task["lock_key"]}).one_or_none()

    @cached_property
    def members(self) -> lines.Members:
        """The members it waits for, if it is a body."""
        return lines.members(self.connection, self.task["id"])

    @cached_property
    def ahead(self) -> int | None:
        """Tasks that go first, at most 1,000: of its account, its lock key, or its members. None: it is in no line."""
        if not self.is_pending or self.task["waits_for"] not in (None, WAITS_FOR_LOCK, WAITS_FOR_MEMBERS):
            return None
        if self.task["waits_for"] == WAITS_FOR_MEMBERS:
            return self.members.n
        if self.task["waits_for"] == WAITS_FOR_LOCK:
            return lines.ahead_of_lock(self.connection, self.task)
        return lines.ahead_in_account(self.connection, self.entry)

    @cached_property
    def ahead_in_account(self) -> int:
        """Tasks of its account that go first, also if it is not ready yet."""
        in_line = self.task["waits_for"] is None and self.ahead is not None
        return self.ahead or 0 if in_line else lines.ahead_in_account(self.connection, self.entry)

    @cached_property
    def tokens(self) -> float | None:
        """The number of tasks that may still begin, by the role's rate."""
        return None if self.of.tokens is None else int(self.of.tokens) - self.held.unstarted

    @property
    def slots(self) -> int:
        """Processes of the workers that are alive."""
        return sum(worker.concurrency for worker in self.workers if worker.is_there)

    @property
    def room(self) -> int:
        """Free slots of the window."""
        return int(self.of.size - self.held.n)

    @property
    def free(self) -> int:
        """Slots that one pass may give now."""
        unmeasured = self.of.is_measured and self.of.prompt and self.of.seconds_per_task is None
        first = max(2 * self.slots, 8) if unmeasured else self.of.batch_size
        free = min(self.of.batch_size, self.room, first)
        return free if self.tokens is None else min(free, int(self.tokens))

    @cached_property
    def others_first(self) -> int:
        """Slots that a pass gives to other accounts before this task, at most `free`."""
        return lines.others_first(
            self.connection, self.entry, ahead=self.ahead_in_account, weight=self.of.weight, cursor=self.of.cursor,
            holding=self.held.accounts, free=self.free,
        )  # fmt: skip

    @cached_property
    def fair(self) -> float | None:
        """The account's fair share of the role's slots; None if it is not among the accounts read."""
        accounts = shares.shares(self.connection, self.lane, limit=shares.MOST).accounts
        return next((share.fair for share in accounts if share.account == self.task["account"]), None)

    @cached_property
    def rounds(self) -> int:
        """Rounds that its account has waited while holding nothing, by the record of the last passes."""
        return rounds.rounds_waited(self.connection, self.lane, self.task["account"])

    def _one(self, statement: TextClause, **parameters: Any) -> Row[Any]:
        return self.connection.execute(statement, parameters).one()
