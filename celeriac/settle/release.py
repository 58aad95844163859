"""Release: take a task from a ticket or worker that will not finish it.

It waits again, unless it was lost too often (failed) or asked to stop (cancelled): at once after a hand-back, after
its role's backoff (if it has one) when it was lost with its worker, so that what kills workers does not kill the next
one a moment later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, text

from celeriac.run.start import Started
from celeriac.settle.look import lead

# The rules stand in `celeriac.store.routines.release`: psql's `recover_stale_tasks` goes by them, too.
RELEASE = text("""
SELECT id, role, lock_key, becomes, leads FROM celeriac_release(
    CAST(:ids AS bigint[]), CAST(:tokens AS uuid[]), :status, :kind, :why, :by, :loss)
""")

OF_PROCESS = text("""
SELECT id, CAST(token AS text) FROM worker_tasks
WHERE status IN ('claimed', 'running') AND status = 'running' AND worker_id = :worker_id
    AND (CAST(:pid AS integer) IS NULL OR worker_pid = :pid)
""")

ROWS_OF = text("""
SELECT id, task_id, role, args, kwargs, headers, retry_count, max_retries, tries, max_tries, losses,
    priority, timeout, parent_id, lock_key, CAST(token AS text),
    deadline_at < clock_timestamp() AS overdue
FROM worker_tasks
WHERE status IN ('claimed', 'running') AND status = 'running' AND worker_id = :worker_id AND worker_pid = :pid
""")

STILL_RUNNING = text("""
SELECT id FROM worker_tasks
WHERE id = ANY(CAST(:ids AS bigint[])) AND token = ANY(CAST(:tokens AS uuid[])) AND status = 'running'
""")

STALE = text("SELECT id, CAST(token AS text) FROM celeriac_stale(:batch, CAST(:minutes AS double precision))")

UNSTARTED = text("""
SELECT t.id, CAST(t.token AS text), t.role, coalesce(r.definition ->> 'queue', t.role) AS queue
FROM worker_tasks t LEFT JOIN roles r ON r.role = t.role
WHERE t.status IN ('claimed', 'running') AND t.status = 'claimed'
    AND t.claimed_at < statement_timestamp() - :grace * interval '1 second'
""")


@dataclass(frozen=True, slots=True)
class Held:
    """A row and the token under which somebody holds it."""

    id: int
    token: str


@dataclass(frozen=True, slots=True)
class Unstarted(Held):
    role: str
    queue: str


@dataclass(frozen=True, slots=True)
class Freed:
    """`becomes`: pending, or how it ended."""

    id: int
    role: str
    becomes: str


@dataclass(frozen=True, slots=True)
class RunningRow:
    task: Started
    overdue: bool


def rows_of(connection: Connection, worker_id: str, pid: int) -> list[RunningRow]:
    """What one child process runs, with whether it is past its deadline."""
    rows = connection.execute(ROWS_OF, {"worker_id": worker_id, "pid": pid})
    return [RunningRow(Started(*row[:-1]), bool(row.overdue)) for row in rows]


def of_process(connection: Connection, worker_id: str, pid: int | None) -> list[Held]:
    """The running rows of one child process (or, without a pid, of the whole worker)."""
    return [Held(*row) for row in connection.execute(OF_PROCESS, {"worker_id": worker_id, "pid": pid})]


def still_running(connection: Connection, held: Sequence[Held]) -> set[int]:
    """Which of these a release passed over, as somebody had them locked; the others are nobody's or somebody else's."""
    given = {"ids": [h.id for h in held], "tokens": [h.token for h in held]}
    return set(connection.execute(STILL_RUNNING, given).scalars())


def stale(connection: Connection, batch: int, minutes: float | None = None) -> list[Held]:
    """Running rows whose worker fell silent for so long, or their role's `stale_after`; locked: none revives now."""
    return [Held(*row) for row in connection.execute(STALE, {"batch": batch, "minutes": minutes})]


def unstarted(connection: Connection, grace: float) -> list[Unstarted]:
    """Claimed rows that nobody started within `grace` seconds; their tickets may be lost, or merely queued."""
    return [Unstarted(*row) for row in connection.execute(UNSTARTED, {"grace": grace})]


def release(
    connection: Connection, held: Iterable[Held], *, status: Literal["claimed", "running"], kind: str, why: str,
    by: str, loss: bool,
) -> Sequence[str]:  # fmt: skip
    """Frees those still in this status under these tokens; the role of each. See `free`."""
    return [freed.role for freed in free(connection, held, status=status, kind=kind, why=why, by=by, loss=loss)]


def free(
    connection: Connection, held: Iterable[Held], *, status: Literal["claimed", "running"], kind: str, why: str,
    by: str, loss: bool,
) -> Sequence[Freed]:  # fmt: skip
    """What became of each that was still in this status under its token.

    `status` keeps a ticket believed lost from being taken back from who started it meanwhile. `loss`: it counts
    against `max_losses`.
    """
    rows = list(held)
    if not rows:
        return []
    given = {"ids": [h.id for h in rows], "tokens": [h.token for h in rows]}
    freed = connection.execute(
        RELEASE, given | {"status": status, "kind": kind, "why": why, "by": by, "loss": loss}
    ).all()
    lead(connection, [row.lock_key for row in freed if row.lock_key is not None and not row.leads])
    return [Freed(row.id, row.role, row.becomes) for row in freed]
