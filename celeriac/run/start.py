"""Start: the one gate between a ticket and a run. Only the right token passes, and only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.dispatch.claim import CLAIM_LONE, FEW
from celeriac.settle.retries import Attempt
from celeriac.store.connections import for_cursor

# The first row of the ticket begins at once, the others one after another: see `begin`.
# :again: an earlier ask may have been answered on a connection that broke; what it started is this process's already.
START = text("""
UPDATE worker_tasks
SET status = 'running', worker_id = :worker_id, worker_pid = :pid,
    started_at = clock_timestamp(), last_heartbeat_at = clock_timestamp(), updated_at = clock_timestamp(),
    deadline_at = CASE WHEN id = (CAST(:ids AS bigint[]))[1]
        THEN clock_timestamp() + coalesce(timeout, :timeout) * interval '1 second' END
WHERE id = ANY(CAST(:ids AS bigint[])) AND token = CAST(:token AS uuid)
    AND (status = 'claimed' OR :again AND status = 'running' AND worker_id = :worker_id AND worker_pid = :pid)
    AND (expires_at IS NULL OR expires_at > statement_timestamp())
RETURNING id, task_id, role, args, kwargs, headers, retry_count, max_retries, tries, max_tries, losses,
    priority, timeout, parent_id, lock_key, CAST(token AS text)
""")

# Both in one trip and one commit.
START_LONE = for_cursor(text(f"{CLAIM_LONE.text};{START.text}"))

BEGIN = text("""
UPDATE worker_tasks SET deadline_at = clock_timestamp() + :timeout * interval '1 second', updated_at = clock_timestamp()
WHERE id = :id AND token = CAST(:token AS uuid) AND status = 'running'
""")

EXPIRE = text("""
WITH gone AS (
    UPDATE worker_tasks
    SET status = 'cancelled', completed_at = clock_timestamp(), updated_at = clock_timestamp(),
        error_message = 'expired before it started'
    WHERE id = ANY(CAST(:ids AS bigint[])) AND token = CAST(:token AS uuid) AND status = 'claimed'
        AND expires_at <= statement_timestamp()
    RETURNING id, role, lock_key
), told AS (
    INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
    SELECT id, role, 'expired', 'claimed', 'cancelled', :by, 'expired before it started' FROM gone
)
SELECT lock_key FROM gone
""")

# Both in one trip and one commit. Said again after an answer that was lost, it leads what is led already.
EXPIRE_AND_LEAD = for_cursor(
    text(f"""
{EXPIRE.text};
SELECT celeriac_lead(array_agg(lock_key)) FROM worker_tasks
WHERE id = ANY(CAST(:ids AS bigint[])) AND token = CAST(:token AS uuid) AND status = 'cancelled'
    AND lock_key IS NOT NULL
HAVING count(*) > 0
""")
)


@dataclass(frozen=True, slots=True)
class Started:
    """A row this worker owns until it settles it or loses its lease."""

    id: int
    task_id: str
    role: str
    args: list[Any]
    kwargs: dict[str, Any]
    headers: dict[str, Any] | None
    retry_count: int
    max_retries: int | None
    tries: int
    max_tries: int
    losses: int
    priority: int
    timeout: float | None
    parent_id: int | None
    lock_key: str | None
    token: str

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.retry_count, self.max_retries, self.tries, self.max_tries)


def start(
    connection: Connection,
    ids: Sequence[int],
    token: str,
    *,
    worker_id: str,
    pid: int,
    timeout: float | None,
    again: bool = False,
) -> list[Started]:
    """The rows that are this ticket's to run, in the ticket's order; the others start nothing, quietly.

    `again`: asked before, without an answer. `timeout`: seconds, for rows that say none themselves. It counts from now
    for the ticket's first row, for the others from when they `begin`.
    """
    given = {"ids": list(ids), "token": token, "worker_id": worker_id, "pid": pid, "timeout": timeout, "again": again}
    rows = {row.id: Started(*row) for row in connection.execute(START, given)}
    return [rows[i] for i in dict.fromkeys(ids) if i in rows]


def start_lone(
    connection: Connection, role: str, task: int, token: str, *, worker_id: str, pid: int, timeout: float | None,
    again: bool = False,
) -> list[Started]:  # fmt: skip
    """The row, claimed and started under this token, if it waits and its role is idle: no pass could do otherwise."""
    given = {"ids": [task], "token": token, "worker_id": worker_id, "pid": pid, "timeout": timeout, "again": again}
    rows = connection.exec_driver_sql(START_LONE, given | {"id": task, "role": role, "few": FEW})
    return [Started(*row) for row in rows]


def begin(connection: Connection, task: int, token: str, timeout: float) -> bool:
    """A row that has waited for others of its ticket has so many seconds from now; False if it is not this run's."""
    return bool(connection.execute(BEGIN, {"id": task, "token": token, "timeout": timeout}).rowcount)


def expire(connection: Connection, ids: Sequence[int], token: str, by: str) -> None:
    """Cancels this ticket's rows that are past `expires_at`; the next of each lock key leads it."""
    connection.exec_driver_sql(EXPIRE_AND_LEAD, {"ids": list(ids), "token": token, "by": by})
