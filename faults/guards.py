"""What a promise rests on, switched off: the harness has to notice, or its own verdicts are worth nothing.

A guard in SQL is changed in the harness's database; one in Python is patched in the harness's own app, which is told
by its environment. The engine has no switches for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text


@dataclass(frozen=True, slots=True)
class Guard:
    """`fault`: the one that brings to light that it is gone, and as what. `sql`: what switches it off, if SQL does."""

    name: str
    says: str
    fault: str
    shows: str
    sql: str = ""


GUARDS = {
    guard.name: guard
    for guard in (
        Guard(
            "fencing", "a settle asks for no token, nor a run for its lease: whoever ran a task writes its outcome",
            "stop-worker", "stale accepted",
        ),
        Guard(
            "unique", "the unique index of unfinished tasks is an ordinary one", "keys-rushed",
            "keys overlapped",
            """DROP INDEX celeriac.tasks_one_unfinished;
            CREATE INDEX tasks_one_unfinished ON celeriac.tasks (role, unique_key) WHERE unique_key IS NOT NULL""",
        ),
        Guard(
            "look", "nobody looks after a commit: no lock key is handed over", "none", "lost",
            """CREATE OR REPLACE FUNCTION celeriac.hand_over(keys text[])
            RETURNS TABLE (id bigint, role text, lock_key text) LANGUAGE sql
            AS $$ SELECT NULL::bigint, NULL::text, NULL::text WHERE false $$""",
        ),
        Guard(
            "rescue", "no silent worker's tasks are rescued", "kill-workers", "lost",
            """CREATE OR REPLACE FUNCTION celeriac.stale(batch integer, minutes double precision)
            RETURNS TABLE (token uuid) LANGUAGE sql AS $$ SELECT NULL::uuid WHERE false $$""",
        ),
        Guard("republish", "tickets that Redis lost are not handed out again", "redis-flushed", "lost"),
    )
}  # fmt: skip


def switch_off(name: str) -> None:
    """In this process: what of the guard is Python."""
    if name == "fencing":
        _unfence()
    elif name == "republish":
        from celeriac import repair

        repair.SWEEPS["lost_tickets"] = lambda _: 0


def _unfence() -> None:
    """The ticket is found by the task it holds, whoever's it is; who wakes up late is not stopped before it settles."""
    from celeriac.run.ticket import TicketRun
    from celeriac.settle import write
    from celeriac.store.prepared import Prepared

    fenced = "SELECT * FROM celeriac.tickets WHERE token = CAST(:token AS uuid) FOR UPDATE"
    anybodys = (
        "SELECT * FROM celeriac.tickets WHERE ids && CAST(:ids AS bigint[]) AND CAST(:token AS text) IS NOT NULL "
        "FOR UPDATE"
    )
    if fenced not in write.COMPLETE.text:
        raise RuntimeError("the statement that completes a task reads otherwise now: change `faults.guards`")
    unfenced = text(write.COMPLETE.text.replace(fenced, anybodys))
    parameters = {"token": "text", "ids": "bigint[]", "results": "text[]", "keep": "boolean"}
    write._COMPLETE = Prepared(unfenced, parameters)
    TicketRun.lease_ends_soon = lambda _: False  # type: ignore[assignment, method-assign]
