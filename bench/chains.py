"""`python -m bench.chains`: what a link of a chain costs, by how long the chain is: time and WAL, one process running.

From the call to the last row's end, a worker waiting. `BENCH_LINKS` says how many links (10,100,1000).
"""

from __future__ import annotations

import os
import time
from typing import Any

from celery import chain
from sqlalchemy import text

from bench.__main__ import _empty_rows, _no_rows, prepared, until, worker
from bench.size import sized
from bench.workflows import _is_up

LENGTHS = [int(n) for n in os.environ.get("BENCH_LINKS", "10,100,1000").split(",")]

#: So many links in all are run of each length.
LINKS = sized(1000, 20)


def main() -> None:
    with prepared():
        from bench.measured import noop

        _empty_rows()
        with worker("rows", "-c", "1"):
            until(_is_up)
            chain(noop.si(i) for i in range(10))()
            until(_no_rows)
            for length in LENGTHS:
                chains = max(1, LINKS // length)
                seconds, called, wal = measured([chain(noop.si(i) for i in range(length)) for _ in range(chains)])
                links = length * chains
                print(
                    f"{length:,} links: {seconds / links * 1000:.2f} ms a link, {wal / links / 1000:.2f} kB of WAL a "
                    f"link; the call {called / chains * 1000:.1f} ms",
                    flush=True,
                )


def measured(workflows: list[Any]) -> tuple[float, float, int]:
    """Run one after the other; return the seconds of all, those of their calls, and bytes of WAL."""
    before, seconds, called = _wal(), 0.0, 0.0
    for workflow in workflows:
        began = time.perf_counter()
        workflow()
        called += time.perf_counter() - began
        until(_no_rows)
        seconds += time.perf_counter() - began
    return seconds, called, _wal() - before


def _wal() -> int:
    from bench.measured import rows

    with rows.database.statement() as connection:
        return int(connection.execute(text("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")).scalar_one())


if __name__ == "__main__":
    main()
