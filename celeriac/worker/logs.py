"""Log lines as JSON objects, on request: `CELERIAC_LOG_FORMAT=json`."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from celery import signals
from celery._state import get_current_task


class AsJson(logging.Formatter):
    """A line a record: when, how grave, who says what, and of which task; `data` of the record beside it."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        task = get_current_task()
        if task and task.request:
            said |= {"task_id": task.request.id, "task_name": task.name}
        data = getattr(record, "data", None)
        said |= {name: value for name, value in (data if isinstance(data, dict) else {}).items() if name not in said}
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        elif record.exc_text:
            said["error"] = record.exc_text
        return json.dumps(said, default=repr, ensure_ascii=False)


def as_json() -> None:
    """From when Celery sets its logging up, in workers and beats."""
    signals.after_setup_logger.connect(_exchange, weak=False, dispatch_uid="celeriac json")
    signals.after_setup_task_logger.connect(_exchange, weak=False, dispatch_uid="celeriac json")


def _exchange(logger: logging.Logger, **_: Any) -> None:
    for handler in logger.handlers:
        handler.setFormatter(AsJson())
