"""Ids of tasks: each later than those before, so that the indexes of `task_id` grow at one end and stay in memory."""

from __future__ import annotations

import os
import time


def fresh_id() -> str:
    """A UUID of version 7 (RFC 9562): the milliseconds since 1970, then 74 random bits, another process's own after a
    fork.
    """
    drawn = int.from_bytes(os.urandom(10), "big")
    stamp = time.time_ns() // 1_000_000 << 16 | 0x7000 | drawn >> 68
    digits = f"{stamp << 64 | 0x8 << 60 | drawn & 0x3FFF_FFFF_FFFF_FFFF:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
