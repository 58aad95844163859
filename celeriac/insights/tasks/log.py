"""The log lines of a task's handler."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

# BETWEEN: as for the events of a task (`tasks.EVENTS`).
LOG = text("""
SELECT id, attempt, at, level, line FROM celeriac.task_logs
WHERE task BETWEEN :id AND :id ORDER BY task DESC, id DESC LIMIT :most
""")

#: Most lines of a task that are returned.
MOST = 1_000


@dataclass(frozen=True, slots=True)
class TaskLogLine:
    id: int
    attempt: int
    at: datetime
    level: str
    line: str


def log_of(connection: Connection, task: int) -> list[TaskLogLine]:
    """Return the last 1,000 lines, in order; the task itself may be gone."""
    return [TaskLogLine(*row) for row in connection.execute(LOG, {"id": task, "most": MOST})][::-1]
