"""The lives of a test's tasks, seen from outside: after each move a function writes down what became of each task
since the last one, and whether the API did it; the life of a task says what it may do, and the audit trail has to say
the same of what the API did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from celeriac.roles import registry
from celeriac.roles.role import Role
from celeriac.store.connections import Database
from celeriac.store.invariants import INVARIANTS
from tests import life

#: Whose tasks the sequences steer; the highest priority of `build` is 60.
ROLES = (
    Role(name="build", max_losses=2, keep=timedelta(microseconds=1), priority_range=(0, 60), prompt=False),
    Role(name="sync", max_losses=3, keep=None, prompt=False),
)

#: What the application makes by itself: its audit rows say how many, not which.
GENERATED = ("product_resync", "store_discovery")

#: Stores that take part in resyncs, and a schedule that enqueues.
STORES, SCHEDULE = (1, 2), 1

#: A task that was made and expired within one call was pending in between, as its event says.
RECORDER = """
CREATE TABLE did (
    n bigserial, by_api boolean, task bigint, role text, was text, became text, had integer, has integer);
CREATE TABLE seen (id bigint PRIMARY KEY, role text, status text, priority integer);
CREATE TABLE found (LIKE seen);
CREATE FUNCTION note(by_api boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO found SELECT id, role, status, priority FROM celeriac.worker_tasks;
    WITH brief AS (
        INSERT INTO seen SELECT id, role, 'pending', priority FROM found f
        WHERE status = 'cancelled' AND NOT EXISTS (SELECT FROM seen s WHERE s.id = f.id)
            AND EXISTS (SELECT FROM celeriac.task_events e WHERE e.task = f.id AND e.kind = 'expired')
        RETURNING id, role
    )
    INSERT INTO did (by_api, task, role, became) SELECT note.by_api, id, role, 'pending' FROM brief;
    INSERT INTO did (by_api, task, role, was, became, had, has)
    SELECT note.by_api, id, coalesce(f.role, s.role), s.status, coalesce(f.status, 'gone'), s.priority, f.priority
    FROM seen s FULL JOIN found f USING (id)
    WHERE (s.status, s.priority) IS DISTINCT FROM (f.status, f.priority);
    DELETE FROM seen;
    INSERT INTO seen SELECT * FROM found;
    DELETE FROM found;
END $$;
INSERT INTO dispensaries (platform, menu_url, name, state, platform_dispensary_id)
VALUES ('dutchie', '1', '1', 'AZ', '1'), ('dutchie', '2', '2', 'NV', '2');
INSERT INTO celeriac.scheduled_jobs (id, name, target, cron_expression)
VALUES (1, 'discovery', 'store_discovery', '@daily');
"""

#: What sequences leave. Parked tasks go before the policies, whose going would have them back.
LEFT = (
    *(f"celeriac.{table}" for table in (
        "parked", "tasks", "ready", "later", "behind", "locks", "looks", "tickets", "history", "intake",
        "account_policies", "unparking", "audit", "task_events")),
    "seen", "found", "did",
)  # fmt: skip
CLEAN = f"""
{"; ".join(f"DELETE FROM {table}" for table in LEFT)};
UPDATE celeriac.roles SET paused = false WHERE paused;
UPDATE celeriac.scheduled_jobs SET last_task_id = NULL WHERE last_task_id IS NOT NULL;
"""

#: Sequences after which the room of what was deleted is given back.
EMPTY_EVERY = 100
EMPTY = f"TRUNCATE {', '.join(LEFT)}"

LOOK = """
SELECT id, task_id, status, role, account, lock_key, unique_key, waits_for, priority, cancel_requested_at,
    status = 'running' AND last_heartbeat_at < statement_timestamp() - interval '10 minutes' AS silent,
    status IN ('pending', 'claimed') AND coalesce(expires_at <= statement_timestamp(), false) AS expired
FROM celeriac.worker_tasks ORDER BY id
"""

FORBIDDEN = """
SELECT DISTINCT was, became FROM did
WHERE NOT (was IS NULL AND became = 'pending')
    AND (was, became) NOT IN (SELECT * FROM unnest(CAST(:was AS text[]), CAST(:became AS text[])))
"""

#: Why what a filter means is steered, and as whose change that is audited: one for all, which its events tell apart.
BY_FILTER, MANY = "by filter", "many"

AUDITED = f"""
SELECT "by", action, kind, CASE kind WHEN 'tasks' THEN '{MANY}' ELSE target END FROM celeriac.audit ORDER BY 1, 2, 3, 4
"""

#: Of each change of a status or a priority: what the API did, and what the audit trail says that it did; where what has
#: expired makes way for a request, or is handed back by a pause, its event says so.
DONE = """
SELECT task, was, became FROM did
WHERE by_api AND was IS DISTINCT FROM became AND NOT (was IS NULL AND role = ANY(CAST(:generated AS text[])))
UNION ALL
SELECT task, CAST(had AS text), CAST(has AS text) FROM did
WHERE by_api AND had <> has AND role <> ALL(CAST(:generated AS text[]))
"""
TOLD = f"""
SELECT CAST(target AS bigint), before ->> 'status', after ->> 'status' FROM celeriac.audit
WHERE kind = 'task' AND before ->> 'status' IS DISTINCT FROM after ->> 'status'
UNION ALL
SELECT task, from_status, to_status FROM celeriac.task_events
WHERE kind = 'expired' AND by NOT SIMILAR TO 'worker|sql:%'
UNION ALL
SELECT task, from_status, to_status FROM celeriac.task_events
WHERE kind = 'handed_back' AND why SIMILAR TO 'its (role|account) was paused%'
UNION ALL
SELECT task, from_status, to_status FROM celeriac.task_events
WHERE why = '{BY_FILTER}' AND from_status IS DISTINCT FROM to_status AND by NOT SIMILAR TO 'worker|sql:%'
UNION ALL
SELECT CAST(target AS bigint), before ->> 'priority', after ->> 'priority' FROM celeriac.audit
WHERE kind = 'task' AND before ->> 'priority' <> after ->> 'priority' AND NOT EXISTS (
    SELECT FROM did WHERE task = CAST(target AS bigint) AND role = ANY(CAST(:generated AS text[])))
"""
UNTOLD, UNTRUE = f"({DONE}) EXCEPT ALL ({TOLD})", f"({TOLD}) EXCEPT ALL ({DONE})"

#: All invariants in one statement that is planned once: it is asked after each move.
VIOLATIONS = f"PREPARE violations AS {' UNION ALL '.join(f'({statement})' for statement in INVARIANTS)}"

#: A key somebody waits for, without a head.
HEADLESS = """
SELECT b.id, b.lock_key FROM celeriac.behind b
WHERE NOT EXISTS (SELECT FROM celeriac.locks l WHERE l.lock_key = b.lock_key)
"""

#: No move may leave one behind that no look is asked for.
FORGOTTEN = f"{HEADLESS} AND NOT EXISTS (SELECT FROM celeriac.looks k WHERE k.lock_key = b.lock_key)"

#: What no sequence may leave behind once time has passed.
OVERDUE = "SELECT id FROM celeriac.worker_tasks WHERE waits_for = 'time' AND scheduled_for <= statement_timestamp()"

_pairs = [(was, became) for was, some in life.NEXT.items() for became in (was, *some)]
_pairs += [(was, "gone") for was in life.MAY_GO]
ALLOWED = {"was": [was for was, _ in _pairs], "became": [became for _, became in _pairs]}

#: By whom, what, of which kind, and which.
Audited = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Task:
    """A row. `silent`: running, and stale by its role's `stale_after`. `expired`: too late to start."""

    id: int
    task_id: str
    status: str
    role: str
    account: str
    lock_key: str | None
    unique_key: str | None
    waits_for: str | None
    priority: int
    cancel_requested_at: datetime | None
    silent: bool
    expired: bool

    @property
    def stage(self) -> tuple[str, datetime | None]:
        return self.status, self.cancel_requested_at

    @property
    def key(self) -> tuple[str, str] | None:
        """What one unfinished task has."""
        return None if self.unique_key is None else (self.role, self.unique_key)


class Lives:
    """`seen` are the transitions there were so far."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.connection = database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.sequences = self.changes = 0
        self.seen: set[tuple[Any, ...]] = set()

    def prepare(self) -> None:
        known = [{"role": role.name, "definition": role.definition(), "parameters": []} for role in ROLES]
        with self.database.transaction() as connection:
            connection.exec_driver_sql(RECORDER)
            registry.register(connection, known, 0)
        self.connection.exec_driver_sql(VIOLATIONS)

    def close(self) -> None:
        self.connection.close()

    def begin(self) -> None:
        self.connection.exec_driver_sql(CLEAN if self.sequences % EMPTY_EVERY else f"{EMPTY}; {CLEAN}")

    @contextmanager
    def change(self) -> Iterator[Connection]:
        """A move of its own transaction, with the look after its commit."""
        with self.database.transaction() as connection:
            yield connection
        self.note(by_api=False)

    def note(self, *, by_api: bool) -> None:
        """Writes down what became of each task since the last time, as one change.

        What it was in between nobody sees, so each move's transaction is noted by itself.
        """
        self.sql("SELECT note(:by_api)", by_api=by_api)

    def look(self) -> dict[int, Task]:
        return {row[0]: Task(*row) for row in self.sql(LOOK)}

    def sql(self, statement: str, **given: Any) -> list[tuple[Any, ...]]:
        result = self.connection.execute(text(statement), given)
        return [tuple(row) for row in result] if result.returns_rows else []

    def check(self) -> None:
        """What every commit leaves true."""
        broken = self.sql("EXECUTE violations") + self.sql(FORGOTTEN)
        assert not broken, broken

    def judge(self, accepted: Sequence[Audited]) -> None:
        """Nobody did what the life of a task forbids; what was accepted is audited, and nothing else was done."""
        assert self.sql(FORBIDDEN, **ALLOWED) == []
        assert self.sql(AUDITED) == sorted(accepted)
        generated = list(GENERATED)
        assert self.sql(UNTOLD, generated=generated) == [], "done, and not audited"
        assert self.sql(UNTRUE, generated=generated) == [], "audited, and not done"
        self.changes += len(accepted)
        self.seen |= set(self.sql("SELECT DISTINCT was, became FROM did"))

    def end(self) -> None:
        self.check()
        assert self.sql(HEADLESS) == self.sql(OVERDUE) == []
        self.sequences += 1
