"""How large the measurements are. `BENCH_SIZE=small`: only to see them run; such figures say nothing."""

from __future__ import annotations

import os


def sized(full: int, small: int) -> int:
    return small if os.environ.get("BENCH_SIZE") == "small" else full


def rounds() -> int:
    """`BENCH_ROUNDS`, 3 else: how often what is compared is measured in turn."""
    return int(os.environ.get("BENCH_ROUNDS", sized(3, 1)))
