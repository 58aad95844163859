"""The lives of a test's tasks, seen from outside: a trigger writes down what each row did and whether the API did it;
the life of a task says what it may do, and the audit trail has to say the same of what the API did.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from celeriac.roles import registry
from celeriac.roles.role import Role
from celeriac.store import states
from celeriac.store.connections import Database

#: Whose tasks the sequences steer; the highest priority of `build` is 60.
ROLES = (
    Role(name="build", max_losses=2, keep=timedelta(0), priority_range=(0, 60), eager=False),
    Role(name="sync", max_losses=3, keep=None, eager=False),
)

#: What the application makes by itself: its audit rows say how many, not which.
GENERATED = ("product_resync", "store_discovery")

#: Stores that take part in resyncs, and a schedule that enqueues.
STORES, SCHEDULE = (1, 2), 1

RECORDER = """
CREATE TABLE did (
    n bigserial, by_api boolean, task bigint, role text, was text, became text, had integer, has integer);
CREATE FUNCTION write_down() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    by_api boolean := current_setting('application_name') = 'celeriac api';
BEGIN
    CASE TG_OP
        WHEN 'INSERT' THEN
            INSERT INTO did (by_api, task, role, became) VALUES (by_api, NEW.id, NEW.role, NEW.status);
        WHEN 'UPDATE' THEN
            INSERT INTO did (by_api, task, role, was, became, had, has)
            VALUES (by_api, NEW.id, NEW.role, OLD.status, NEW.status, OLD.priority, NEW.priority);
        ELSE
            INSERT INTO did (by_api, task, role, was, became)
            VALUES (by_api, OLD.id, OLD.role, OLD.status, 'gone');
    END CASE;
    RETURN NULL;
END $$;
CREATE TRIGGER write_down AFTER INSERT OR UPDATE OR DELETE ON worker_tasks FOR EACH ROW EXECUTE FUNCTION write_down();
INSERT INTO dispensaries (platform, menu_url, name, state, platform_dispensary_id)
VALUES ('dutchie', '1', '1', 'AZ', '1'), ('dutchie', '2', '2', 'NV', '2');
INSERT INTO scheduled_jobs (id, name, target, cron_expression) VALUES (1, 'discovery', 'store_discovery', '@daily');
"""

#: The triggers of deleted rows write, too.
CLEAN = """
DELETE FROM worker_tasks;
DELETE FROM did; DELETE FROM audit; DELETE FROM task_events; DELETE FROM account_policies;
UPDATE roles SET paused = false WHERE paused;
UPDATE scheduled_jobs SET last_task_id = NULL WHERE last_task_id IS NOT NULL;
"""

#: Sequences after which the room of what was deleted is given back.
EMPTY_EVERY = 100
EMPTY = "TRUNCATE worker_tasks, did, audit, task_events, account_policies"

LOOK = """
SELECT id, task_id, status, role, account, lock_key, unique_key, waits_for, priority, cancel_requested_at,
    status = 'running' AND last_heartbeat_at < statement_timestamp() - interval '10 minutes' AS silent,
    status IN ('pending', 'claimed') AND coalesce(expires_at <= statement_timestamp(), false) AS expired
FROM worker_tasks ORDER BY id
"""

FORBIDDEN = """
SELECT DISTINCT was, became FROM did
WHERE NOT (was IS NULL AND became = 'pending')
    AND (was, became) NOT IN (SELECT * FROM unnest(CAST(:was AS text[]), CAST(:became AS text[])))
"""

#: Of each change of a status or a priority: what the API did, and what the audit trail says that it did; where what has
#: expired makes way for a request, its event says so.
DONE = """
SELECT task, was, became FROM did
WHERE by_api AND was IS DISTINCT FROM became AND NOT (was IS NULL AND role = ANY(CAST(:generated AS text[])))
UNION ALL
SELECT task, CAST(had AS text), CAST(has AS text) FROM did
WHERE by_api AND had <> has AND role <> ALL(CAST(:generated AS text[]))
"""
TOLD = """
SELECT CAST(target AS bigint), before ->> 'status', after ->> 'status' FROM audit
WHERE kind = 'task' AND before ->> 'status' IS DISTINCT FROM after ->> 'status'
UNION ALL
SELECT task, from_status, to_status FROM task_events WHERE kind = 'expired' AND by NOT SIMILAR TO 'worker|sql:%'
UNION ALL
SELECT CAST(target AS bigint), before ->> 'priority', after ->> 'priority' FROM audit
WHERE kind = 'task' AND before ->> 'priority' <> after ->> 'priority' AND NOT EXISTS (
    SELECT FROM did WHERE task = CAST(target AS bigint) AND role = ANY(CAST(:generated AS text[])))
"""
UNTOLD, UNTRUE = f"({DONE}) EXCEPT ALL ({TOLD})", f"({TOLD}) EXCEPT ALL ({DONE})"

#: A key somebody waits for and nobody leads: no move may leave one behind.
LEADERLESS = """
SELECT id, lock_key FROM worker_tasks t
WHERE waits_for = 'lock' AND NOT EXISTS (
    SELECT FROM worker_tasks l WHERE l.lock_key = t.lock_key AND l.waits_for IS NULL
        AND l.status IN ('pending', 'claimed', 'running'))
"""

#: What no sequence may leave behind once time has passed.
OVERDUE = "SELECT id FROM worker_tasks WHERE waits_for = 'time' AND scheduled_for <= statement_timestamp()"

_pairs = [(was, became) for was, some in states.NEXT.items() for became in (was, *some)]
_pairs += [(was, "gone") for was in states.MAY_GO]
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
        with self.change() as connection:
            connection.exec_driver_sql(RECORDER)
            registry.register(connection, known, 0)

    def close(self) -> None:
        self.connection.close()

    def begin(self) -> None:
        self.connection.exec_driver_sql(CLEAN if self.sequences % EMPTY_EVERY else f"{EMPTY}; {CLEAN}")

    def change(self) -> AbstractContextManager[Connection]:
        """A move of its own transaction."""
        return self.database.transaction()

    def look(self) -> dict[int, Task]:
        return {row[0]: Task(*row) for row in self.sql(LOOK)}

    def sql(self, statement: str, **given: Any) -> list[tuple[Any, ...]]:
        result = self.connection.execute(text(statement), given)
        return [tuple(row) for row in result] if result.returns_rows else []

    def judge(self, accepted: Sequence[Audited]) -> None:
        """Nobody did what the life of a task forbids; what was accepted is audited, and nothing else was done."""
        assert self.sql(FORBIDDEN, **ALLOWED) == []
        assert self.sql('SELECT "by", action, kind, target FROM audit ORDER BY 1, 2, 3, 4') == sorted(accepted)
        generated = list(GENERATED)
        assert self.sql(LEADERLESS) == []
        assert self.sql(UNTOLD, generated=generated) == [], "done, and not audited"
        assert self.sql(UNTRUE, generated=generated) == [], "audited, and not done"
        self.changes += len(accepted)
        self.seen |= set(self.sql("SELECT DISTINCT was, became FROM did"))

    def end(self) -> None:
        assert self.sql(LEADERLESS) == self.sql(OVERDUE) == []
        self.sequences += 1
