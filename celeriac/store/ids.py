"""Ids of tasks: each later than those before, so that the indexes of `task_id` grow at one end and stay in memory."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime, timedelta

#: The UUID's variant digit, chosen by two random bits.
_VARIANT = "89ab"


def fresh_id() -> str:
    """Return a UUID of version 7 (RFC 9562): the milliseconds since 1970, then 74 random bits,
    which differ after a fork.
    """
    return _made(time.time_ns(), os.urandom(10))


def fresh_ids(count: int) -> list[str]:
    """Return `count` ids of the same millisecond, in their order."""
    now, drawn = time.time_ns(), os.urandom(10 * count)
    return sorted(_made(now, drawn[i : i + 10]) for i in range(0, 10 * count, 10))


def began(task_id: str) -> datetime | None:
    """Return the time in such an id, by the clock of the process that made it; None for any other id."""
    digits = task_id.replace("-", "")
    if len(digits) != 32 or digits[12] != "7":
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(digits[:12], 16))
    except (ValueError, OverflowError):
        return None


def _made(nanoseconds: int, drawn: bytes) -> str:
    begin, digits = f"{nanoseconds // 1_000_000:012x}", drawn.hex()
    return f"{begin[:8]}-{begin[8:]}-7{digits[:3]}-{_VARIANT[drawn[9] & 3]}{digits[3:6]}-{digits[6:18]}"


#: The form of a schedule's ids. Another task with such an id would stop the schedule, so that others may not give one.
#: `celeriac.is_instants` is the same in SQL.
_FORM = re.compile(r"@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\Z", re.ASCII)


def instants_id(schedule: str, instant: datetime) -> str:
    """Return the id of the one task of this instant."""
    return f"{schedule}@{instant.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"


def is_instants(task_id: str) -> bool:
    return _FORM.search(task_id) is not None
