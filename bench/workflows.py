"""`python -m bench.workflows`: a chord beside the same group without a body, in turn; prints the ratios of their times.

From the call to the last row's end, a worker waiting. `BENCH_MEMBERS` says how many members (100,000).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from celery import chord, group

from bench.__main__ import _empty_rows, _no_rows, prepared, until, worker
from bench.size import sized

MEMBERS = sized(int(os.environ.get("BENCH_MEMBERS", 100_000)), 500)
ROUNDS = sized(3, 1)


def main() -> None:
    with prepared():
        from bench.measured import noop, total

        ratios = []
        for _ in range(ROUNDS):
            alone = timed(group([noop.s(i) for i in range(MEMBERS)]))
            bound = timed(chord([noop.s(i) for i in range(MEMBERS)], total.s()))
            ratios.append(bound / alone)
            print(f"{MEMBERS:,} members: group {alone:.2f} s, chord {bound:.2f} s, ratio {ratios[-1]:.2f}", flush=True)
        print(f"ratio {median(ratios):.2f}")


def timed(enqueue: Callable[[], Any]) -> float:
    """Seconds."""
    _empty_rows()
    with worker("rows"):
        until(_is_up)
        began = time.perf_counter()
        enqueue()
        until(_no_rows)
        return time.perf_counter() - began


def _is_up() -> bool:
    from bench.measured import rows

    with rows.database.statement() as connection:
        return bool(connection.exec_driver_sql("SELECT true FROM celeriac.workers WHERE status = 'active'").scalar())


if __name__ == "__main__":
    main()
