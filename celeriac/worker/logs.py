"""Log lines: text, in which only a record begins a line, or JSON objects (`CELERIAC_LOG_FORMAT=json`).

Their events are listed in `celeriac.logged`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from copy import copy
from datetime import UTC, datetime
from typing import Any

from celery import signals
from celery._state import get_current_task
from celery.app.log import TaskFormatter
from celery.utils.log import ColorFormatter, get_multiprocessing_logger

from celeriac.run import outlets, run
from celeriac.run.lines import known

#: SQLAlchemy's line with a statement's parameters.
_PARAMETERS = re.compile(r"^\[parameters: .*$", re.MULTILINE)


#: Fields of a task in Celery's log records that are never shown.
_HIDDEN = frozenset({"args", "kwargs", "return_value"})


class AsJson(logging.Formatter):
    """Formats a record as a line of JSON: time, level, logger, message, the task it is about, and its `data`."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": _without_parameters(_message(record)),
        }
        task, mine = get_current_task(), run.current()
        if task and task.request:
            said |= {"task_id": task.request.id, "task_name": task.name}
        if mine is not None:
            said |= {name: value for name, value in known(mine.task).items() if name not in said}
        data = getattr(record, "data", None)
        more = data if isinstance(data, dict) else {}
        said |= {name: value for name, value in more.items() if name not in said and name not in _HIDDEN}
        if record.exc_info:
            said["error"] = _without_parameters(self.formatException(record.exc_info))
        elif record.exc_text:
            said["error"] = _without_parameters(record.exc_text)
        return json.dumps(said, default=repr, ensure_ascii=False)


def _message(record: logging.LogRecord) -> str:
    """Return the message; results and arguments, which Celery's own lines have, are masked."""
    if not isinstance(record.args, Mapping):
        return record.getMessage()
    return str(record.msg) % {**record.args, **dict.fromkeys(_HIDDEN & record.args.keys(), "***")}


def _without_parameters(said: str) -> str:
    """Return the text without a statement's parameters: no line shows arguments."""
    return _PARAMETERS.sub("[parameters are not shown]", said)


#: Characters that move a terminal's cursor, or that some programs take for a line end.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")

#: Finds such a character or a line end. Most messages have neither, and are written as they are.
_NEEDS_CARE = re.compile(f"\n|{_CONTROLS.pattern}")

#: The indent of a record's further lines, so that no line that a task wrote looks like a record.
_CONTINUED = "\n    "


#: Formatters of text. The lines of any other formatter are left as they are.
_PLAIN = (logging.Formatter, ColorFormatter, TaskFormatter)


#: The fields that a format may show if lines are written in batches.
_ALIKE = frozenset({"asctime", "levelname", "levelno", "message", "msecs", "process", "processName"})
_FIELD = re.compile(r"%\((\w+)\)")


class AsText(logging.Formatter):
    """Formats as `inner` does, but no text in a message can look like a line of the log."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self.inner = inner
        is_known = type(inner) in (logging.Formatter, ColorFormatter) and type(inner._style) is logging.PercentStyle
        #: True if lines of equal time, level and process differ in nothing but their message.
        self.is_alike = is_known and _ALIKE.issuperset(_FIELD.findall(inner._style._fmt))

    def format(self, record: logging.LogRecord) -> str:
        if not (record.exc_info or record.exc_text or _NEEDS_CARE.search(record.getMessage())):
            return self.inner.format(record)
        shown = copy(record)
        shown.msg, shown.args = in_one_record(record.getMessage()), ()
        error = record.exc_text or (self.inner.formatException(record.exc_info) if record.exc_info else None)
        shown.exc_text = error and in_one_record(error)
        return self.inner.format(shown)

    def many(self, said: Iterable[tuple[float, str]]) -> str:
        """Return lines at INFO with these times (seconds of the epoch) and messages. Only for a formatter that
        `is_alike`.
        """
        lines, last, before, after = [], -1, "", ""
        for created, message in said:
            if (now := int(created * 1000)) != last:
                record = logging.LogRecord("", logging.INFO, "", 0, "\0", (), None)
                record.created, record.msecs, last = created, float(now % 1000), now
                before, _, after = self.inner.format(record).partition("\0")
            shown = in_one_record(message) if _NEEDS_CARE.search(message) else message
            lines.append(f"{before}{shown}{after}\n")
        return "".join(lines)


def in_one_record(said: str) -> str:
    """Indent all lines but the first, and escape control characters."""
    lines = said.replace("\r\n", "\n").replace("\n", _CONTINUED)
    return _CONTROLS.sub(lambda one: f"\\x{ord(one[0]):02x}", lines)


def configure() -> None:
    """Log from INFO on as JSON objects, in a process whose logging Celery does not set up."""
    handler = outlets.patient(logging.StreamHandler())
    handler.setFormatter(AsJson())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)


def in_text(*names: str) -> None:
    """Format safe text in a process whose logging Celery does not set up, for handlers of the root logger and of these
    loggers, and for records without a handler. May be called again once there are more handlers.
    """
    root, last = logging.getLogger(), logging.lastResort
    for handler in [*root.handlers, *([last] if last else [])]:
        if handler.formatter is None or type(handler.formatter) in _PLAIN:
            handler.setFormatter(AsText(handler.formatter or logging.Formatter()))
    for handler in (one for name in names for one in logging.getLogger(name).handlers):
        if not isinstance(handler.formatter, AsText):
            handler.setFormatter(AsText(handler.formatter or logging.Formatter()))


def exchange(kind: str) -> None:
    """Change the format to `json` or `text` when Celery sets up logging, in workers and beats; write through outlets,
    so that no line waits for its reader.
    """
    exchanged = _to_json if kind == "json" else _to_safe_text
    for signal in (signals.after_setup_logger, signals.after_setup_task_logger):
        signal.connect(_to_outlets, weak=False, dispatch_uid="celeriac outlets")
        signal.connect(exchanged, weak=False, dispatch_uid="celeriac log")


@signals.worker_process_shutdown.connect(weak=False)
def _finish(**_: Any) -> None:
    outlets.finish()


def _to_outlets(logger: logging.Logger, **_: Any) -> None:
    for one in (logger, get_multiprocessing_logger()):
        one.handlers[:] = map(outlets.patient, one.handlers)


def _to_json(logger: logging.Logger, **_: Any) -> None:
    for handler in logger.handlers:
        handler.setFormatter(AsJson())


def _to_safe_text(logger: logging.Logger, **_: Any) -> None:
    for handler in logger.handlers:
        if type(handler.formatter) in _PLAIN:
            handler.setFormatter(AsText(handler.formatter))  # type: ignore[arg-type]
