"""DBOS' part, run by a Python that has it: `fill N TASK SIZE`, `single N`, `within N`, `paced RATE SECONDS`,
`work`, `retain`.

A task is a workflow without steps.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions
from sqlalchemy import create_engine, text

from bench.peers import pace
from bench.peers.pace import asked, payload, stamp, steady

#: Where that is, libpq reads of the variables.
DATABASE = f"postgresql:///{os.environ['PGDATABASE']}"

APPLICATION = QUEUE = "bench"

#: How many workflows a process runs at once.
CONCURRENCY = 100

#: Seconds between two looks for work.
POLL = 0.01


@DBOS.workflow(name="noop")
def noop(n: int | str) -> None:
    """Nothing."""


@DBOS.workflow(name="sleep")
def sleep(n: int) -> None:  # noqa: ARG001
    pace.sleep()


@DBOS.workflow(name="compute")
def compute(n: int) -> None:  # noqa: ARG001
    pace.compute()


@DBOS.workflow(name="stamp")
def stamped(sent: float) -> None:
    stamp(sent)


def work() -> None:
    """Until it is ended."""
    config: DBOSConfig = {
        "name": APPLICATION,
        "application_version": "1",
        "executor_id": str(os.getpid()),
        "system_database_url": DATABASE,
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=POLL)
    threading.Event().wait()


def fill(n: int, task: str, size: int) -> None:
    """Workflows of before are removed first. There is no bulk: one after the other, in one transaction."""
    DBOS.migrate(DATABASE)
    client = _client()
    engine = create_engine(DATABASE.replace("postgresql", "postgresql+psycopg", 1))
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE dbos.workflow_status CASCADE"))
        for i in range(n):
            client.enqueue_in_transaction(connection, _options(task), payload(i, size))


def single(n: int) -> float:
    client = _client()
    began = time.perf_counter()
    for i in range(n):
        client.enqueue(_options("noop"), i)
    return time.perf_counter() - began


def within(n: int) -> float:
    client, engine = _client(), create_engine(DATABASE.replace("postgresql", "postgresql+psycopg", 1))
    with engine.connect() as connection:
        began = time.perf_counter()
        for i in range(n):
            connection.execute(text("INSERT INTO bench_orders (n) VALUES (:n)"), {"n": i})
            client.enqueue_in_transaction(connection, _options("noop"), i)
            connection.commit()
        return time.perf_counter() - began


def retain() -> None:
    """Workflows that succeeded are deleted again and again."""
    client = _client()
    while True:
        time.sleep(pace.REMOVES)
        ended = client.list_workflows(status="SUCCESS", limit=1_000, load_input=False, load_output=False)
        if ended:
            client.delete_workflows([one.workflow_id for one in ended])


def paced(rate: float, seconds: float) -> None:
    client = _client()
    for now in steady(rate, seconds):
        client.enqueue(_options("stamp"), now)


def _client() -> DBOSClient:
    return DBOSClient(system_database_url=DATABASE, application_name=APPLICATION)


def _options(task: str) -> EnqueueOptions:
    return {"queue_name": QUEUE, "workflow_name": task}


if __name__ == "__main__":
    verb, *given = sys.argv[1:]
    if verb == "work":
        work()
    elif verb == "paced":
        paced(*asked())
    elif verb == "retain":
        retain()
    elif verb == "fill":
        fill(int(given[0]), given[1], int(given[2]))
    else:
        print({"single": single, "within": within}[verb](int(given[0])))
