"""Procrastinate's part, for a Python that has it: `main` with `fill N`, `single N` or `paced RATE SECONDS`.

Its own command works.
"""

from __future__ import annotations

import sys
import time

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from bench.peers.pace import asked, stamp, steady

app = App(connector=PsycopgConnector())


@app.task(name="noop")
def noop(n: int) -> None:
    """Nothing."""


@app.task(name="stamp")
def stamped(sent: float) -> None:
    stamp(sent)


def fill(n: int) -> float:
    """Jobs of before and their events are removed first."""
    with app.replace_connector(SyncPsycopgConnector()) as sync, sync.open():
        sync.connector.execute_query("TRUNCATE procrastinate_jobs CASCADE")
        began = time.perf_counter()
        if n:
            sync.tasks["noop"].batch_defer(*({"n": i} for i in range(n)))
        return time.perf_counter() - began


def single(n: int) -> float:
    with app.replace_connector(SyncPsycopgConnector()) as sync, sync.open():
        defer = sync.tasks["noop"].defer
        began = time.perf_counter()
        for i in range(n):
            defer(n=i)
        return time.perf_counter() - began


def paced(rate: float, seconds: float) -> None:
    with app.replace_connector(SyncPsycopgConnector()) as sync, sync.open():
        defer = sync.tasks["stamp"].defer
        for now in steady(rate, seconds):
            defer(sent=now)


def main() -> None:
    verb, *given = sys.argv[1:]
    if verb == "paced":
        paced(*asked())
    else:
        print({"fill": fill, "single": single}[verb](int(given[0])))
