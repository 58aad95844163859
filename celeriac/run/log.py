"""A task's own log: what its handler writes to `self.log` is kept with the task, and goes to the process's log as well.
If lines differ in numbers and names alone, a few are kept, and the others are counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection

from celeriac import logged
from celeriac.store import forks
from celeriac.store.connections import Database
from celeriac.store.failures import in_a_line
from celeriac.store.messages import pattern_of

logger = logging.getLogger("celeriac.task")

KEEP = text("""
INSERT INTO celeriac.task_logs (task, attempt, at, level, line)
SELECT :task, :attempt, at, level, line
FROM jsonb_to_recordset(CAST(:lines AS jsonb)) AS l (at timestamptz, level text, line text)
""")

#: The most lines of an attempt, the most characters of a line, and the most lines that are alike.
MOST, LONGEST, ALIKE = 1_000, 2_000, 5

#: Stands for all lines after `MOST`, which are only counted.
REST = "\0 the rest"

#: Maximum seconds that a line waits for others before it is written.
EVERY = 1.0


class TaskLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one attempt. Debug lines are kept if the logger takes them. While Postgres is away, lines are lost."""

    def __init__(self, database: Database, task: int, attempt: int, fields: Mapping[str, Any]) -> None:
        super().__init__(logger, {})
        self.database, self.task, self.attempt = database, task, attempt
        self.fields = logged.of("task.log", task=task, attempt=attempt, **fields)
        self.waiting: list[dict[str, str]] = []
        self.kept, self.alike, self.left_out = 0, Counter[str](), Counter[tuple[int, str]]()
        self.written = time.monotonic()
        self.generation = forks.generation

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        if level < logging.INFO and not self.isEnabledFor(level):
            return
        line = _message(level, msg, args)
        if self.generation != forks.generation:  # this process was forked by the handler
            self.logger.log(level, "%s", line, extra=self.fields)
            return
        same = REST if self.kept >= MOST else pattern_of(line[:LONGEST])
        self.alike[same] += 1
        if self.alike[same] > ALIKE or same == REST:
            self.left_out[level, same] += 1
            return
        self.kept += 1
        full_text = f"{line}\n{traceback.format_exc()}" if kwargs.get("exc_info") else line
        self._keep(level, full_text)
        if self.isEnabledFor(level):
            kwargs.setdefault("extra", self.fields)
            self.logger.log(level, "%s", line, **kwargs)
        if time.monotonic() - self.written >= EVERY and asyncio._get_running_loop() is None:
            self.write()

    def end(self) -> None:
        """Write how many lines were left out, and all that waits."""
        for (level, same), n in self.left_out.items():
            said = f"and {n:,} more" if same == REST else f"and {n:,} more like: {same}"
            self._keep(level, said)
            self.logger.log(level, "%s", said, extra=self.fields)
        self.left_out.clear()
        self.write()

    def write(self) -> None:
        lines, self.waiting, self.written = self.waiting, [], time.monotonic()
        if not lines:
            return
        try:
            with self.database.transaction() as connection:
                keep(connection, self.task, self.attempt, lines)
        except (DBAPIError, NoConnection) as error:
            logger.warning("%d lines of task %d could not be kept: %s", len(lines), self.task, in_a_line(error))

    def _keep(self, level: int, line: str) -> None:
        legible = line[:LONGEST].replace("\0", "\\0").encode(errors="replace").decode()
        at = datetime.now(UTC).isoformat()
        self.waiting.append({"at": at, "level": logging.getLevelName(level), "line": legible})


def _message(level: int, msg: object, args: tuple[object, ...]) -> str:
    """Format the message as logging does; arguments that do not fit raise no error in the handler."""
    try:
        return logging.LogRecord(logger.name, level, "", 0, msg, args, None).getMessage()
    except Exception:
        return _as_far_as_legible(msg, args)


def _as_far_as_legible(msg: object, args: tuple[object, ...]) -> str:
    try:
        return f"{msg} {args}"
    except Exception as error:
        return f"A line that cannot be written: {type(error).__name__}"


def keep(connection: Connection, task: int, attempt: int, lines: list[dict[str, str]]) -> None:
    connection.execute(KEEP, {"task": task, "attempt": attempt, "lines": json.dumps(lines)})
