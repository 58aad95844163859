"""`python -m bench.steady`: a steady load, and a drain, while somebody's transaction stays open.

Nothing that dies meanwhile may be vacuumed. `BENCH_SHARE` says what share of a clean drain's rate the load is (0.6),
`BENCH_SECONDS` for how long (300), `BENCH_DRAIN` how many tasks the drain under the open transaction has (200,000).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from sqlalchemy import create_engine, text

from bench.__main__ import ROUNDS, _drain, _empty_rows, _fill_rows, _left_rows, _no_rows, prepared, until, worker
from bench.size import sized

SECONDS = sized(int(os.environ.get("BENCH_SECONDS", 300)), 3)
DRAINED = sized(int(os.environ.get("BENCH_DRAIN", 200_000)), 500)

#: How often a bulk is enqueued, and of what share of a clean drain's rate the load is.
EVERY, SHARE = 0.1, float(os.environ.get("BENCH_SHARE", 0.6))

#: How often a line is printed (seconds).
PERIOD = sized(30, 1)


def main() -> None:
    with prepared() as stack:
        clean = median(_drain("rows", _fill_rows, _left_rows, _no_rows) for _ in range(ROUNDS))
        print(f"clean drain, median of {ROUNDS}: {clean:,.0f} tasks/s", flush=True)
        with old_transaction(stack.database_url):
            steady(clean * SHARE)
        with old_transaction(stack.database_url):
            drain()


@contextmanager
def old_transaction(url: str) -> Iterator[None]:
    """Idle, with a snapshot."""
    engine = create_engine(url, isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        connection.execute(text("SELECT count(*) FROM celeriac.roles"))
        yield
    engine.dispose()


def steady(rate: float) -> None:
    """What of the load is completed, period by period."""
    from bench.measured import noop

    _empty_rows()
    bulk, given, began = max(1, int(rate * EVERY)), 0, time.monotonic()
    at_period, ends = (began, 0), began + SECONDS
    with worker("rows"):
        while (now := time.monotonic()) < ends or at_period[0] < ends:
            if now < ends and given < (now - began) * rate:
                noop.bulk([(i,) for i in range(bulk)])
                given += bulk
            else:
                time.sleep(EVERY / 10)
            if now - at_period[0] >= PERIOD:
                completed = given - _left_rows()
                done = (completed - at_period[1]) / (now - at_period[0])
                rates = f"load {rate:,.0f}/s  completed {done:,.0f}/s"
                print(f"{now - began:6.0f} s  {rates}  waiting {given - completed:,}", flush=True)
                at_period = (now, completed)


def drain() -> None:
    """Quarter by quarter."""
    _fill_rows(DRAINED)
    with worker("rows"):
        until(lambda: _left_rows() < DRAINED)
        began, left = time.perf_counter(), _left_rows()
        for quarter in (3, 2, 1, 0):
            until(lambda: _left_rows() <= DRAINED * quarter // 4)  # noqa: B023
            now, rest = time.perf_counter(), _left_rows()
            print(f"drain of {DRAINED:,}: {(left - rest) / (now - began):,.0f} tasks/s, {rest:,} left", flush=True)
            began, left = now, rest


if __name__ == "__main__":
    main()
