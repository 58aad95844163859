"""`python -m bench.metrics_cost`: what telling figures costs a drain. With and without, in pairs of which each other
begins with it; prints the ratio.

With: the worker tells its own (`CELERIAC_METRICS_ADDRESS`), and every five seconds somebody reads that, reads what SQL
knows and counts the minutes that are over. `BENCH_DRAIN` says how many tasks a drain has (200,000).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median
from urllib.error import URLError
from urllib.request import urlopen

from bench import __main__ as bench
from bench.__main__ import _drain, _fill_rows, _left_rows, _no_rows, prepared
from bench.size import sized

DRAINED = sized(int(os.environ.get("BENCH_DRAIN", 200_000)), 2_000)

#: The drains of a pair differ by a tenth on a quiet machine, so that a few pairs say little.
PAIRS = sized(14, 1)

#: Seconds between two scrapes.
EVERY = sized(5, 1)


def main() -> None:
    bench.DRAIN["rows"] = DRAINED
    ratios = []
    with prepared():
        for pair in range(PAIRS):
            first = _told_drain() if pair % 2 else None
            without = _drain("rows", _fill_rows, _left_rows, _no_rows)
            rate, scrapes = first or _told_drain()
            ratios.append(rate / without)
            print(f"without {without:,.0f}/s  with {rate:,.0f}/s, {scrapes} scrapes", flush=True)
    print(f"ratio: {median(ratios):.3f} of the rate with figures told; at least 0.97 is promised")


def _told_drain() -> tuple[float, int]:
    """The rate, and how often it was scraped."""
    with told() as address, scraped(address) as scrapes:
        return _drain("rows", _fill_rows, _left_rows, _no_rows), len(scrapes)


@contextmanager
def told() -> Iterator[str]:
    """Workers that start here tell figures at this address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    os.environ["CELERIAC_METRICS_ADDRESS"] = address
    yield address
    del os.environ["CELERIAC_METRICS_ADDRESS"]


@contextmanager
def scraped(address: str) -> Iterator[list[int]]:
    """Each scrape's bytes."""
    ending, scrapes = threading.Event(), list[int]()
    thread = threading.Thread(target=_scrape, args=(address, ending, scrapes))
    thread.start()
    try:
        yield scrapes
    finally:
        ending.set()
        thread.join()


def _scrape(address: str, ending: threading.Event, scrapes: list[int]) -> None:
    from bench.measured import rows
    from celeriac.metrics.exporter import Exporter
    from celeriac.repair import sweep

    exporter = Exporter(rows)
    while not ending.wait(EVERY):
        with suppress(URLError, OSError):  # before the worker listens, and after it
            told = urlopen(f"http://{address}/metrics", timeout=EVERY).read()
            scrapes.append(len(told) + len(exporter.text()))
            sweep(rows, "minutes")


if __name__ == "__main__":
    main()
