"""Procrastinate's part, for a Python that has it: `main` with `fill N TASK SIZE`, `single N`, `within N`,
`paced RATE SECONDS` or `retain`.

Its own command works.
"""

from __future__ import annotations

import asyncio
import sys
import time

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from bench.peers import pace
from bench.peers.pace import asked, payload, stamp, steady

app = App(connector=PsycopgConnector())


@app.task(name="noop")
def noop(n: int | str) -> None:
    """Nothing."""


@app.task(name="sleep")
def sleep(n: int) -> None:  # noqa: ARG001
    pace.sleep()


@app.task(name="compute")
def compute(n: int) -> None:  # noqa: ARG001
    pace.compute()


@app.task(name="stamp")
def stamped(sent: float) -> None:
    stamp(sent)


def fill(n: int, task: str, size: int) -> float:
    """Jobs of before and their events are removed first."""
    with app.replace_connector(SyncPsycopgConnector()) as sync, sync.open():
        sync.connector.execute_query("TRUNCATE procrastinate_jobs CASCADE")
        began = time.perf_counter()
        if n:
            sync.tasks[task].batch_defer(*({"n": payload(i, size)} for i in range(n)))
        return time.perf_counter() - began


def single(n: int) -> float:
    with app.replace_connector(SyncPsycopgConnector()) as sync, sync.open():
        defer = sync.tasks["noop"].defer
        began = time.perf_counter()
        for i in range(n):
            defer(n=i)
        return time.perf_counter() - began


def within(n: int) -> float:
    with app.replace_connector(SyncPsycopgConnector()) as sync, sync.open(), psycopg.connect("") as connection:
        noop = sync.tasks["noop"]
        began = time.perf_counter()
        for i in range(n):
            with connection.transaction():
                connection.execute("INSERT INTO bench_orders (n) VALUES (%s)", (i,))
                noop.configure(connection=connection).defer(n=i)
        return time.perf_counter() - began


async def retain() -> None:
    """Jobs that succeeded are deleted again and again."""
    async with app.open_async():
        while True:
            await asyncio.sleep(pace.REMOVES)
            await app.job_manager.delete_old_jobs(nb_hours=0)


def paced(rate: float, seconds: float) -> None:
    with app.replace_connector(SyncPsycopgConnector()) as sync, sync.open():
        defer = sync.tasks["stamp"].defer
        for now in steady(rate, seconds):
            defer(sent=now)


def main() -> None:
    verb, *given = sys.argv[1:]
    if verb == "paced":
        paced(*asked())
    elif verb == "fill":
        print(fill(int(given[0]), given[1], int(given[2])))
    elif verb == "retain":
        asyncio.run(retain())
    else:
        print({"single": single, "within": within}[verb](int(given[0])))
