"""Procrastinate's part, for a Python that has it: `main` with `fill N` or `single N`; its own command works."""

from __future__ import annotations

import sys
import time

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

app = App(connector=PsycopgConnector())


@app.task(name="noop")
def noop(n: int) -> None:
    """Nothing."""


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


def main() -> None:
    verb, n = sys.argv[1:]
    print({"fill": fill, "single": single}[verb](int(n)))
