"""Release: take tasks from a ticket whose holder will not finish them.

A task waits again, unless it was lost too often (failed) or asked to stop (cancelled): at once after a hand-back, after
its role's backoff (if it has one) when it was lost with its worker, so that what kills workers does not kill the next
one a moment later.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, text

from celeriac import logged
from celeriac.counters import COUNTERS
from celeriac.store import look

logger = logging.getLogger(__name__)

#: Tasks that a line names.
NAMED = 20

# The rules stand in `store/routines/release.sql`: psql's `recover_stale_tasks` goes by them, too.
RELEASE = text("""
SELECT id, role, lock_key, becomes, hands_over, CAST(barrier AS text) AS barrier FROM celeriac.release(
    CAST(:tokens AS uuid[]), CAST(:only AS bigint[]), :started, :kind, :why, :by, :loss)
""")

# INVARIANT: locked until the caller's transaction ends, so that nobody takes the task from this run before its writes
# are committed.
HOLD = text("SELECT :id = ANY (ids) FROM celeriac.tickets WHERE token = CAST(:token AS uuid) FOR UPDATE")

OF_PROCESS = text("""
SELECT CAST(token AS text) FROM celeriac.tickets
WHERE worker_id = :worker_id AND (CAST(:pid AS integer) IS NULL OR worker_pid = :pid)
""")

OF_PROCESSES = text("""
SELECT CAST(token AS text), worker_id, worker_pid FROM celeriac.tickets
WHERE worker_id = ANY (CAST(:workers AS text[])) AND worker_pid = ANY (CAST(:pids AS integer[]))
""")

STILL_HELD = text("""
SELECT CAST(token AS text) FROM celeriac.tickets
WHERE token = ANY (CAST(:tokens AS uuid[])) AND worker_id IS NOT NULL
    AND (CAST(:only AS bigint[]) IS NULL OR ids && CAST(:only AS bigint[]))
""")

STALE = text("SELECT CAST(token AS text) FROM celeriac.stale(:batch, CAST(:minutes AS double precision))")

UNSTARTED = text("""
SELECT CAST(k.token AS text), coalesce(r.definition ->> 'queue', k.role) AS queue
FROM celeriac.tickets k LEFT JOIN celeriac.roles r ON r.role = k.role
WHERE k.worker_id IS NULL AND k.claimed_at < statement_timestamp() - :grace * interval '1 second'
""")


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A ticket nobody has started; it may be lost, or merely queue."""

    token: str
    queue: str


@dataclass(frozen=True, slots=True)
class Freed:
    """`becomes`: pending, or how it ended."""

    id: int
    role: str
    becomes: str


def of_process(connection: Connection, worker_id: str, pid: int | None) -> list[str]:
    """The tickets one child process runs (or, without a pid, the whole worker)."""
    return list(connection.execute(OF_PROCESS, {"worker_id": worker_id, "pid": pid}).scalars())


def of_processes(connection: Connection, processes: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[str]]:
    """What each of these child processes runs, by its worker and pid; nothing of those that hold none."""
    workers, pids = map(list, zip(*processes, strict=True))
    held: dict[tuple[str, int], list[str]] = {}
    for token, *process in connection.execute(OF_PROCESSES, {"workers": workers, "pids": pids}):
        held.setdefault((process[0], process[1]), []).append(token)
    return {process: held[process] for process in processes if process in held}


def still_held(connection: Connection, tokens: Sequence[str], only: Sequence[int] | None = None) -> list[str]:
    """Which of these running tickets a release passed over, as somebody had them locked; `only`: these tasks."""
    wanted = {"tokens": list(tokens), "only": None if only is None else list(only)}
    return list(connection.execute(STILL_HELD, wanted).scalars())


def stale(connection: Connection, batch: int, minutes: float | None = None) -> list[str]:
    """Tickets whose worker fell silent for so long, or their role's `stale_after`; locked: none revives now."""
    return list(connection.execute(STALE, {"batch": batch, "minutes": minutes}).scalars())


def unstarted(connection: Connection, grace: float) -> list[Unstarted]:
    """Tickets that nobody started within `grace` seconds."""
    return [Unstarted(*row) for row in connection.execute(UNSTARTED, {"grace": grace})]


def hold(connection: Connection, task: int, token: str) -> bool:
    """Keeps the task this ticket's until the end of the caller's transaction; False if it is not.

    Who waited for an UPDATE of `worker_tasks` finds the row gone that it has replaced; another statement sees the new.
    """
    wanted = {"id": task, "token": token}
    return any(connection.execute(HOLD, wanted).scalar_one_or_none() for _ in range(2))


def release(
    connection: Connection, tokens: Sequence[str], *, started: bool | None, kind: str, why: str, by: str, loss: bool,
    only: Sequence[int] | None = None,
) -> list[Freed]:  # fmt: skip
    """What became of each task that was freed. The keys they gave up are handed over after the commit.

    `started` keeps a ticket believed lost from being taken back from who started it meanwhile. `only`: these tasks of
    the tickets. `loss`: it counts against `max_losses`.
    """
    if not tokens or (only is not None and not only):
        return []
    wanted = {"tokens": list(tokens), "only": None if only is None else list(only), "started": started}
    rows = connection.execute(RELEASE, wanted | {"kind": kind, "why": why, "by": by, "loss": loss}).all()
    look.ask(connection, [row.lock_key for row in rows if row.hands_over])
    look.ask_joins(connection, [row.barrier for row in rows])
    freed = [Freed(row.id, row.role, row.becomes) for row in rows]
    if kind != "unpublished":  # what Redis did not take is told of where it is published
        _tell(connection, freed, kind, why, by)
    return freed


#: The event of a kind; of the others a task was rescued.
EVENTS = {"ticket_lost": "ticket.lost", "handed_back": "task.handed_back"}


def _tell(connection: Connection, freed: Sequence[Freed], kind: str, why: str, by: str) -> None:
    event = EVENTS.get(kind, "task.rescued")
    for role, n in Counter(task.role for task in freed).items():
        counted = ("tickets_republished_total", role) if kind == "ticket_lost" else ("rescued_total", role, kind)
        logged.once_committed(connection, partial(COUNTERS.count, n, *counted))
        tasks = [task.id for task in freed if task.role == role][:NAMED]
        message = f"{n} tasks of {role} were taken from their tickets ({why}): {', '.join(map(str, tasks))}"
        message += ", …" if n > len(tasks) else ""
        fields = {"role": role, "reason": kind, "n": n, "tasks": tasks, "by": by}
        logged.after_commit(connection, logger, logging.INFO, message, event=event, **fields)
