"""Streams for the log that neither wait nor fail: a full disk, or a pipe that nobody reads, stops no work.

A line is written at once if that does not block. Otherwise it is kept for a thread that waits, up to `MOST` bytes in
all. Lines beyond that, or beyond the disk's space, are dropped, and their number is logged.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import socket
import stat
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache, partial
from logging.handlers import WatchedFileHandler
from typing import Any, TextIO

from celeriac import logged
from celeriac.store.forks import after_fork

logger = logging.getLogger(__name__)

#: Maximum bytes of lines that a process keeps for a late reader.
MOST = 1 << 20

#: Seconds that an ending process waits for a late reader.
ENDS_WITHIN = 1.0

#: Writes bytes; returns how many. Raises BlockingIOError if that would wait.
Write = Callable[[bytes], int]

_open: weakref.WeakSet[Outlet] = weakref.WeakSet()


class Outlet:
    """A text stream over another: `write` returns at once and raises no OSError. A forked process starts without the
    lines that it keeps.
    """

    def __init__(self, stream: TextIO, most: int = MOST) -> None:
        self.most, self.dropped = most, 0
        self.onto(stream)
        self._anew()
        after_fork(self._anew)
        _open.add(self)

    def onto(self, stream: TextIO) -> Outlet:
        """Write to this stream from now on. Raises OSError if it has no descriptor."""
        self.stream, self.encoding = stream, stream.encoding or "utf-8"
        self._write, close = _without_waiting(stream.fileno())
        weakref.finalize(self, close).atexit = False
        return self

    def _anew(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._kept: deque[bytes] = deque()
        self._size, self.dropped = 0, 0
        self._thread: threading.Thread | None = None

    def write(self, said: str) -> int:
        line = said.encode(self.encoding, "backslashreplace")
        with self._lock:
            if self._kept or self._write is None:
                self._keep(line)
                return len(said)
            try:
                written = self._write(line)
            except BlockingIOError:
                written = 0
            except OSError:
                self.dropped += 1
                return len(said)
            if written != len(line):
                self._keep(line[written:])
                return len(said)
        if self.dropped:
            self._tell()
        return len(said)

    def flush(self) -> None:
        """Do nothing: no line waits for others."""

    def close(self) -> None:
        self.finish()
        self.stream.close()

    def finish(self, within: float = ENDS_WITHIN) -> None:
        """Wait until all that is kept is written, at most this time (seconds)."""
        with self._changed:
            self._changed.wait_for(lambda: not self._kept, within)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def _keep(self, line: bytes) -> None:
        if self._size >= self.most:
            self.dropped += 1
            return
        self._kept.append(line)
        self._size += len(line)
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._late, name="celeriac log", daemon=True)
            self._thread.start()

    def _late(self) -> None:
        """Write what is kept, for as long as the process lives."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._kept)
                line = self._kept[0]
            try:
                written = self._when_it_can(line)
            except BlockingIOError:
                written, lost = 0, 0
            except (OSError, ValueError):
                written, lost = len(line), 1
            else:
                lost = 0
            with self._changed:
                self._size -= written
                self.dropped += lost
                if written == len(line):
                    self._kept.popleft()
                else:
                    self._kept[0] = line[written:]
                self._changed.notify_all()
                over = not self._kept and not lost and self.dropped
            if over:
                self._tell()

    def _when_it_can(self, line: bytes) -> int:
        """Wait until something can be written; return how many bytes were written."""
        descriptor = self.stream.fileno()
        if self._write is None:
            return os.write(descriptor, line)
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        poll.poll()
        return self._write(line)

    def _tell(self) -> None:
        """Log how many lines are missing, now that lines are written again."""
        with self._lock:
            lines, self.dropped = self.dropped, 0
        if not lines:
            return
        message = "%s lines of this log were dropped: nobody read it, or its disk was full"
        logger.warning(message, f"{lines:,}", extra=logged.of("log.dropped", lines=lines))
        with self._lock:
            if self.dropped:  # this line as well
                self.dropped += lines - 1


def _without_waiting(descriptor: int) -> tuple[Write | None, Callable[[], None]]:
    """Return how to write there without waiting (None: nobody can), and how to close what was opened for it.

    A pipe is opened once more: `O_NONBLOCK` on the descriptor itself would hold for every process that has it.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or os.isatty(descriptor):
        try:
            again = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return None, _nothing
        return partial(os.write, again), partial(os.close, again)
    if stat.S_ISSOCK(mode):
        connected = socket.socket(fileno=os.dup(descriptor))
        return lambda line: connected.send(line, socket.MSG_DONTWAIT), connected.close
    return partial(os.write, descriptor), _nothing


def _nothing() -> None:
    """Close nothing: nothing was opened."""


@cache
def of(stream: TextIO) -> Outlet:
    """Return the outlet over this stream, which is one of the process's own."""
    return Outlet(stream)


def _hearing(named: logging.Logger) -> list[logging.Handler]:
    """Return the handlers that get a record of this logger; none of a logger of another class."""
    handlers: list[logging.Handler] = []
    logger: logging.Logger | None = named if type(named) is logging.Logger else None
    while logger is not None:
        handlers += [handler for handler in logger.handlers if type(handler) is not logging.NullHandler]
        logger = logger.parent if logger.propagate else None
    return handlers


class Lines:
    """Lines at INFO about tasks that are written together: a line by itself costs more than a small task. They are
    written before any other line of the process, and with the outcomes of their tasks at the latest.
    """

    def __init__(self) -> None:
        self._forget()
        after_fork(self._forget)

    def _forget(self) -> None:
        self._waiting: deque[tuple[float, str]] = deque()
        self._handler: PatientStream | PatientFile | None = None

    def take(self, *loggers: logging.Logger) -> bool:
        """Return whether lines of these loggers look the same when written in a batch: their only handler is one over
        an outlet, and its format shows nothing of a record but time, level and process.
        """
        if logging.getLogRecordFactory() is not logging.LogRecord:
            return False
        if logging.Logger.callHandlers.__code__.co_filename != logging.__file__:  # Sentry and similar tools replace it
            return False
        handlers = [handler for named in loggers for handler in _hearing(named)]
        if len(handlers) != len(loggers) or len(set(handlers)) != 1:
            return False
        if not isinstance(handler := handlers[0], PatientStream | PatientFile):
            return False
        if handler.filters or handler.level > logging.INFO or not getattr(handler.formatter, "is_alike", False):
            return False
        if self._handler is not handler:  # the waiting lines are another outlet's: loggers may have a file each
            self.write()
            self._handler = handler
        return True

    def add(self, message: str) -> None:
        self._waiting.append((time.time(), message))

    def write(self) -> None:
        """Write what waits."""
        if not self._waiting or (handler := self._handler) is None:
            return
        with handler.lock or nullcontext():
            waiting: list[tuple[float, str]] = []
            with suppress(IndexError):  # a signal handler that logs may write some in between
                while True:
                    waiting.append(self._waiting.popleft())
            if waiting:
                handler.say(handler.formatter.many(waiting))  # type: ignore[union-attr]


class PatientStream(logging.StreamHandler[Outlet]):
    """A handler over an outlet."""

    def flush(self) -> None:
        """Do nothing: an outlet keeps no line back, so flushing each one would only cost time."""

    def emit(self, record: logging.LogRecord) -> None:
        LINES.write()
        super().emit(record)

    def say(self, lines: str) -> None:
        """Write whole lines."""
        self.stream.write(lines)


class PatientFile(WatchedFileHandler):
    """Celery's handler of a log file, which follows a rotation. If the file cannot be opened, lines are lost, but no
    task fails.
    """

    outlet: Outlet | None = None

    def _open(self) -> Any:
        opened = super()._open()
        self.outlet = self.outlet.onto(opened) if self.outlet else Outlet(opened)
        return self.outlet

    def flush(self) -> None:
        """Do nothing, as above."""

    def emit(self, record: logging.LogRecord) -> None:
        LINES.write()
        try:
            super().emit(record)
        except OSError:
            if self.outlet:
                self.outlet.dropped += 1

    def say(self, lines: str) -> None:
        """Write whole lines."""
        try:
            self.reopenIfNeeded()
            if self.outlet:
                self.outlet.write(lines)
        except OSError:
            if self.outlet:
                self.outlet.dropped += lines.count("\n")


#: The lines of this process that are written together.
LINES = Lines()


def patient(handler: logging.Handler) -> logging.Handler:
    """Return a handler that writes the same to the same place through an outlet. Handlers of other kinds than
    Celery's own, and streams that have no descriptor, are left as they are.
    """
    exchanged: logging.Handler
    if type(handler) is WatchedFileHandler:
        exchanged = PatientFile(handler.baseFilename, handler.mode, handler.encoding, errors=handler.errors)
        handler.close()
    elif type(handler) is logging.StreamHandler:
        try:
            exchanged = PatientStream(of(handler.stream))
        except (OSError, ValueError, AttributeError, TypeError):
            return handler
    else:
        return handler
    exchanged.setFormatter(handler.formatter)
    exchanged.setLevel(handler.level)
    exchanged.filters = handler.filters
    return exchanged


def finish() -> None:
    """Wait a moment for each outlet to write what it keeps; called as the process ends."""
    LINES.write()
    for outlet in tuple(_open):
        outlet.finish()


atexit.register(finish)
