"""How large the measurements are. `BENCH_SIZE=small`: only to see them run; such figures say nothing."""

from __future__ import annotations

import os


def sized(full: int, small: int) -> int:
    return small if os.environ.get("BENCH_SIZE") == "small" else full
