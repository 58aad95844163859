"""Read what is left of a task that no longer exists, and the rule by which it was removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, text

from celeriac.insights.tasks.tasks import events
from celeriac.store.role_names import is_built_in

# BETWEEN: see `tasks.EVENTS`.
ROLE_OF = text("""
SELECT role FROM celeriac.task_events WHERE task BETWEEN :id AND :id ORDER BY task DESC, id DESC LIMIT 1
""")

KEEP = text("SELECT definition -> 'keep' AS keep FROM celeriac.roles WHERE role = :role")


@dataclass(frozen=True, slots=True)
class Gone:
    """A task's remains. `keep`: seconds its role keeps finished tasks, "forever", or None: no successes are kept."""

    role: str
    keep: float | Literal["forever"] | None
    events: list[dict[str, Any]]


def gone(connection: Connection, task: int, *, otherwise: float) -> Gone | None:
    """Return what is left of the task of this id; None if nothing is. `otherwise`: seconds for which tasks of Celery's
    or the engine's own roles are kept, for which nobody can declare a time.
    """
    role = connection.execute(ROLE_OF, {"id": task}).scalar_one_or_none()
    if role is None:
        return None
    declared = connection.execute(KEEP, {"role": role}).one_or_none()
    unsaid: float | Literal["forever"] = otherwise if is_built_in(role) else "forever"
    return Gone(role, unsaid if declared is None else declared.keep, events(connection, task))
