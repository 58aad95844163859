"""A task that is not here (any more): what is left of it, and by which rule it went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, text

from celeriac.insights.tasks.tasks import events
from celeriac.store.built_in import is_built_in

# BETWEEN: see `tasks.EVENTS`.
ROLE_OF = text("""
SELECT role FROM celeriac.task_events WHERE task BETWEEN :id AND :id ORDER BY task DESC, id DESC LIMIT 1
""")

KEEP = text("SELECT definition -> 'keep' AS keep FROM celeriac.roles WHERE role = :role")


@dataclass(frozen=True, slots=True)
class Gone:
    """`keep`: seconds for which the role's finished tasks are kept, "forever", or None: of its successes none is."""

    role: str
    keep: float | Literal["forever"] | None
    events: list[dict[str, Any]]


def gone(connection: Connection, task: int, *, otherwise: float) -> Gone | None:
    """What outlives the task of this id; None where that is nothing.

    `otherwise`: seconds for which is kept what is Celery's own or the engine's, which nobody could declare.
    """
    role = connection.execute(ROLE_OF, {"id": task}).scalar_one_or_none()
    if role is None:
        return None
    declared = connection.execute(KEEP, {"role": role}).one_or_none()
    unsaid: float | Literal["forever"] = otherwise if is_built_in(role) else "forever"
    return Gone(role, unsaid if declared is None else declared.keep, events(connection, task))
