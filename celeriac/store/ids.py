"""Ids of tasks: each later than those before, so that the indexes of `task_id` grow at one end and stay in memory."""

from __future__ import annotations

import os
import time

#: By two random bits.
_VARIANT = "89ab"


def fresh_id() -> str:
    """A UUID of version 7 (RFC 9562): the milliseconds since 1970, then 74 random bits, another process's own after a
    fork.
    """
    return fresh_ids(1)[0]


def fresh_ids(count: int) -> list[str]:
    """So many of the same millisecond, in their order."""
    now = f"{time.time_ns() // 1_000_000:012x}"
    begin = f"{now[:8]}-{now[8:]}-7"
    drawn = os.urandom(10 * count)
    digits = drawn.hex()
    return sorted(
        f"{begin}{digits[i : i + 3]}-{_VARIANT[drawn[i // 2 + 9] & 3]}{digits[i + 3 : i + 6]}-{digits[i + 6 : i + 18]}"
        for i in range(0, 20 * count, 20)
    )
