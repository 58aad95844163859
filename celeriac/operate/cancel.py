"""Cancel a task: at once if it does not run; otherwise by a request to its worker to stop it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sqlalchemy import Connection, text

from celeriac.store import look
from celeriac.store.plans import lookups

CANCEL = text("""
SELECT task_id, was, gives_up, CAST(barrier AS text) AS barrier FROM celeriac.cancel(
    ARRAY(SELECT id FROM celeriac.tasks WHERE task_id = ANY (CAST(:task_ids AS text[]))
        AND (CAST(:parents AS bigint[]) IS NULL OR parent_id = ANY (CAST(:parents AS bigint[])))),
    'cancel', :why, :by)
""")


Cancelled = Literal["cancelled", "asked"]


def cancel(connection: Connection, task_id: str, *, by: str, why: str) -> Cancelled | None:
    """Cancel the task or request its worker to stop it, and return which; None if there is no such unfinished task."""
    return cancel_all(connection, [task_id], by=by, why=why).get(task_id)


def cancel_all(
    connection: Connection, task_ids: Sequence[str], *, by: str, why: str, parents: Sequence[int] | None = None
) -> dict[str, Cancelled]:
    """Cancel many tasks; the result omits finished and unknown ones. `parents`: cancel only tasks enqueued by these."""
    asked = {"task_ids": list(task_ids), "by": by, "why": why, "parents": None if parents is None else list(parents)}
    with lookups(connection):
        rows = connection.execute(CANCEL, asked).all()
    look.ask(connection, [row.gives_up for row in rows])
    look.ask_joins(connection, [row.barrier for row in rows])
    return {row.task_id: "asked" if row.was == "running" else "cancelled" for row in rows}
