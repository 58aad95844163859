"""What a task's handler wrote to its log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

# BETWEEN: as for the events of a task.
LOG = text("""
SELECT id, attempt, at, level, line FROM celeriac.task_logs
WHERE task BETWEEN :id AND :id ORDER BY task DESC, id DESC LIMIT :most
""")

#: Lines of a task that are told.
MOST = 1_000


@dataclass(frozen=True, slots=True)
class TaskLogLine:
    id: int
    attempt: int
    at: datetime
    level: str
    line: str


def log_of(connection: Connection, task: int) -> list[TaskLogLine]:
    """The last 1,000, in order; of a task that may be gone."""
    return [TaskLogLine(*row) for row in connection.execute(LOG, {"id": task, "most": MOST})][::-1]
