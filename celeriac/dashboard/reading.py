"""Read insights, each in a read-only transaction of bounded time, and once for all viewers in the same second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg2.extensions import QueryCanceledError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac import insights
from celeriac.doctor import Finding, examine
from celeriac.store.failures import is_locked

if TYPE_CHECKING:
    from celeriac.app import Celeriac

T = TypeVar("T")

#: Maximum seconds of a statement; seconds for which its result is kept for equal requests; and for how many times its
#: duration a slow statement's result is kept. So Postgres spends at most a tenth of its time on a statement, however
#: many viewers there are.
TIMEOUT, SERVES, TIMES = 2.0, 1.0, 9.0

#: Maximum number of results that are kept.
MOST = 500

#: Number of threads that read for pages, beside the handlers' own.
THREADS = 3

#: Maximum number of examinations by the doctor that run at once: one may be stuck while another runs after a change.
DOCTORS = 2


@dataclass(frozen=True, slots=True)
class Content:
    """An insight's result; or, in `stopped`, why there is none."""

    value: Any = None
    stopped: str | None = None

    def then(self, make: Callable[[Any], Any]) -> Content:
        """Return what `make` returns for the value; if the insight was stopped, this content."""
        return self if self.stopped else Content(make(self.value))


class Kept:
    """One result, or its error. The first caller reads it; the others wait for that and do not read it again."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.until, self.value = 0.0, None
        self.error: DBAPIError | None = None

    def get(self, read: Callable[[], Any]) -> Any:
        with self.turn:
            began = time.monotonic()
            if began > self.until:
                try:
                    self.value, self.error = read(), None
                except DBAPIError as error:
                    self.value, self.error = None, _bare(error)
                ended = time.monotonic()
                self.until = _tick(ended + (0.0 if is_passing(self.error) else TIMES * (ended - began)))
            if self.error is not None:
                raise _bare(self.error)
            return self.value


def _tick(earliest: float) -> float:
    """Return the next instant at which results are read again: the same for all, so that a page is rendered once and
    not for each panel.
    """
    return (earliest // SERVES + 1) * SERVES


def is_passing(error: DBAPIError | None) -> bool:
    """Return whether the statement was not too slow, but Postgres failed: it may be back in a moment."""
    return error is not None and not isinstance(error.orig, QueryCanceledError)


def _bare(error: DBAPIError) -> DBAPIError:
    """Return a copy without traceback, which would grow with each raise and hold its frames."""
    if error.orig is not None:
        error.orig.__traceback__ = None
    return copy(error).with_traceback(None)


class Reading:
    """Reads insights: `of(insight, …)` calls one with a connection and these arguments."""

    def __init__(self, celeriac: Celeriac) -> None:
        self.celeriac = celeriac
        self._kept: dict[str, Kept] = {}
        self._threads = ThreadPoolExecutor(THREADS, "celeriac-reading")
        self._doctors, self._turn = ThreadPoolExecutor(DOCTORS, "celeriac-doctor"), threading.Lock()
        self._doctor: Future[list[Finding]] | None = None
        self._moment: dict[Hashable, Any] = {}
        self._moment_ends = 0.0

    def of(self, insight: Callable[..., Any], *args: Any, figures: bool = False, **kwargs: Any) -> Any:
        """Read an insight. `figures`: it counts many rows, so it is not planned for look-ups. Raises its errors."""

        def read() -> Any:
            database = self.celeriac.database
            with database.transaction() if figures else database.reading() as connection:
                bound(connection)
                return insight(connection, *args, **kwargs)

        return self._shared(f"{insight.__module__}.{insight.__qualname__} {args!r} {kwargs!r}", read)

    def _shared(self, key: str, read: Callable[[], Any]) -> Any:
        if len(self._kept) >= MOST:
            self._kept = {}
        return self._kept.setdefault(key, Kept()).get(read)

    def panel(self, insight: Callable[..., Any], *args: Any, **kwargs: Any) -> Content:
        """Read as `of` does; if it takes too long, a sentence takes its place on the page."""
        try:
            return Content(self.of(insight, *args, **kwargs))
        except DBAPIError as error:
            if is_locked(error):
                return Content(stopped="Somebody's open transaction has locked what this reads.")
            if not isinstance(error.orig, QueryCanceledError):
                raise
            return Content(stopped=f"This took over {TIMEOUT:g} s and was stopped. Narrow it by role or time.")

    def at_once(self, reads: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """Return each result, by name. The caller does the reads that no thread has begun, the last one first."""
        begun = {name: self._threads.submit(read) for name, read in reads.items()}
        try:
            return {name: reads[name]() if one.cancel() else one.result() for name, one in reversed(begun.items())}
        finally:  # after an error the others are not waited for
            for one in begun.values():
                one.cancel()

    def moment(self) -> dict[Hashable, Any]:
        """Return the cache of renderings made since results were last read again."""
        now = time.monotonic()
        if now > self._moment_ends:
            self._moment, self._moment_ends = {}, _tick(now)
        return self._moment

    def clock(self) -> datetime:
        """Return the database's time."""
        now: datetime = self.of(insights.clock)
        return now

    def redis_answers(self) -> bool:
        return bool(self._shared("redis", self.celeriac.publisher.answers))

    def examined(self) -> Content:
        """Return the doctor's findings, if it ends within a statement's time; else a later request gets them."""
        with self._turn:
            if self._doctor is None or self._doctor.done():
                self._doctor = self._doctors.submit(self._shared, "doctor", lambda: examine(self.celeriac))
            doctor = self._doctor
        try:
            return Content(doctor.result(TIMEOUT))
        except TimeoutError:
            return Content(
                stopped=f"The doctor still examines, for over {TIMEOUT:g} s. Its answer comes with a later look."
            )

    def lengths(self, queues: Sequence[str]) -> dict[str, int | None]:
        """Return how many tickets and wake-ups are in each queue of Redis; None if it does not answer."""
        probe = self.celeriac.probe
        lengths: dict[str, int | None] = self._shared(f"lengths {queues}", lambda: {q: probe.length(q) for q in queues})
        return lengths

    def forget(self) -> None:
        """Drop all results after a change, so that its author sees the change."""
        self._kept, self._doctor, self._moment = {}, None, {}


def bound(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = '{TIMEOUT * 1000:.0f} ms'")
