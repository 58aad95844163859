"""Release: take tasks from a ticket whose holder will not finish them.

A released task waits again, unless it was lost too often (then it fails) or was asked to stop (then it is cancelled).
After a hand-back it is due at once. After a loss with its worker it waits for its role's backoff, if there is one, so
that what kills workers does not kill the next one a moment later.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, text

from celeriac import logged
from celeriac.counters import COUNTERS
from celeriac.store import look

logger = logging.getLogger(__name__)

#: Maximum number of tasks that a log line names.
NAMED = 20

# The rules are in `store/routines/release.sql`, because `recover_stale_tasks`, called from psql, follows them, too.
RELEASE = text("""
SELECT id, role, lock_key, becomes, hands_over, CAST(barrier AS text) AS barrier FROM celeriac.release(
    CAST(:tokens AS uuid[]), CAST(:only AS bigint[]), :started, :kind, :why, :by, :loss)
""")

# INVARIANT: the ticket stays locked until the caller's transaction ends, so that nobody takes the task from this run
# before its writes are committed.
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

STALE = text("""
SELECT CAST(token AS text), heartbeat_at, is_free FROM celeriac.stale_after(
    :batch, CAST(:minutes AS double precision), CAST(:after_at AS timestamptz), CAST(:after_token AS uuid))
""")

UNLOCKED = text("SELECT CAST(token AS text) FROM celeriac.unlocked(CAST(:tokens AS uuid[])) AS u (token)")

UNSTARTED = text("""
SELECT CAST(k.token AS text),
    coalesce(r.definition ->> 'queue', nullif(split_part(k.role, ',', 2), ''), k.role) AS queue
FROM celeriac.tickets k LEFT JOIN celeriac.roles r ON r.role = k.role
WHERE k.worker_id IS NULL AND k.claimed_at < statement_timestamp() - :grace * interval '1 second'
""")


@dataclass(frozen=True, slots=True)
class Stale:
    """A ticket whose worker fell silent. `is_free`: nobody has locked a task of it."""

    token: str
    heartbeat_at: datetime
    is_free: bool


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A ticket that nobody has started: it may be lost, or still wait in its queue."""

    token: str
    queue: str


@dataclass(frozen=True, slots=True)
class Freed:
    """A task that was taken from its ticket. `becomes`: pending, or the status it ended with."""

    id: int
    role: str
    becomes: str


def of_process(connection: Connection, worker_id: str, pid: int | None) -> list[str]:
    """Return the tokens of the tickets that a child process runs, or without a `pid` the whole worker."""
    return list(connection.execute(OF_PROCESS, {"worker_id": worker_id, "pid": pid}).scalars())


def of_processes(connection: Connection, processes: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[str]]:
    """Return the tickets that each of these child processes runs, by worker and pid; a process without tickets is
    absent.
    """
    workers, pids = map(list, zip(*processes, strict=True))
    held: dict[tuple[str, int], list[str]] = {}
    for token, *process in connection.execute(OF_PROCESSES, {"workers": workers, "pids": pids}):
        held.setdefault((process[0], process[1]), []).append(token)
    return {process: held[process] for process in processes if process in held}


def still_held(connection: Connection, tokens: Sequence[str], only: Sequence[int] | None = None) -> list[str]:
    """Return which of these running tickets a release has passed over because they were locked; `only`: those with
    these tasks.
    """
    wanted = {"tokens": list(tokens), "only": None if only is None else list(only)}
    return list(connection.execute(STILL_HELD, wanted).scalars())


def stale(
    connection: Connection, batch: int, minutes: float | None = None, *, after: Stale | None = None
) -> list[Stale]:
    """Lock and return tickets whose worker has been silent for `minutes`, or else for their role's `stale_after`.

    The lock keeps their workers from reviving them. The longest silent come first; `after`: from this one on.
    """
    at, token = (None, None) if after is None else (after.heartbeat_at, after.token)
    wanted = {"batch": batch, "minutes": minutes, "after_at": at, "after_token": token}
    return [Stale(*row) for row in connection.execute(STALE, wanted)]


def unlocked(connection: Connection, tokens: Sequence[str]) -> list[str]:
    """Return those of these tickets none of whose tasks somebody has locked, and lock their tasks."""
    return list(connection.execute(UNLOCKED, {"tokens": list(tokens)}).scalars()) if tokens else []


def unstarted(connection: Connection, grace: float) -> list[Unstarted]:
    """Return the tickets that nobody started within `grace` seconds."""
    return [Unstarted(*row) for row in connection.execute(UNSTARTED, {"grace": grace})]


def hold(connection: Connection, task: int, token: str) -> bool:
    """Lock this ticket until the caller's transaction ends; return False if it no longer covers the task.

    The statement runs twice if need be: one that waited for an UPDATE of `worker_tasks` finds its row replaced, and
    only another sees the new one.
    """
    wanted = {"id": task, "token": token}
    return any(connection.execute(HOLD, wanted).scalar_one_or_none() for _ in range(2))


def release(
    connection: Connection, tokens: Sequence[str], *, started: bool | None, kind: str, why: str, by: str, loss: bool,
    only: Sequence[int] | None = None,
) -> list[Freed]:  # fmt: skip
    """Take tasks from these tickets and return what became of each. Their lock keys are handed over after the commit.

    `started`: only tickets that somebody has started (or has not), so that a ticket believed lost is not taken from a
    worker that started it meanwhile. `only`: take only these tasks. `loss`: it counts against `max_losses`.
    """
    if not tokens or (only is not None and not only):
        return []
    wanted = {"tokens": list(tokens), "only": None if only is None else list(only), "started": started}
    rows = connection.execute(RELEASE, wanted | {"kind": kind, "why": why, "by": by, "loss": loss}).all()
    look.ask(connection, [row.lock_key for row in rows if row.hands_over])
    look.ask_joins(connection, [row.barrier for row in rows])
    freed = [Freed(row.id, row.role, row.becomes) for row in rows]
    if kind != "unpublished":  # the publisher reports what Redis did not take
        _tell(connection, freed, kind, why, by)
    return freed


#: The log event of each kind of release; any other kind is a rescue.
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
