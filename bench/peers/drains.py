"""Drains: of no-op tasks, clean and beside what holds a snapshot or removes what has finished, and of other tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import text

from bench.__main__ import until
from bench.peers.pace import REMOVES
from bench.peers.peer import Figures, Peer, memory, spent
from bench.size import sized
from bench.tidied import vacuum

#: How long (seconds) a long reader holds its snapshot.
READS = 2.0

#: What else a task does: its name, the characters of its argument, and how many are drained.
WORKS = {"kilobyte": ("noop", 1_000, sized(10_000, 50)), "sleeps": ("sleep", 0, sized(5_000, 50))}

#: And, of those that compute 10 ms: so many that whoever notes them by the hundreds ends no sooner for it.
COMPUTED = sized(1_500, 20)


def measured(peer: Peer, redis_pid: int) -> Figures:
    """Tasks a second of each drain; of the clean one what a task costs, and the seconds of the bulk before it."""
    clean, costs, bulk = drain(peer, redis_pid)
    figures = {"drain": clean} | costs
    if bulk:
        figures["bulk"] = peer.total / bulk
    with old_transaction():
        figures["old"] = drain(peer, redis_pid)[0]
    with long_readers():
        figures["readers"] = drain(peer, redis_pid)[0]
    if peer.retain is not None:
        peer.fill(0, "noop", 0)
        with peer.retain():
            figures["retention"] = drain(peer, redis_pid, peer.brief)[0]
    return (
        figures
        | {name: drain(peer, redis_pid, *work)[0] for name, work in WORKS.items()}
        | {"computes": computed(peer)}
    )


def drain(
    peer: Peer, redis_pid: int, task: str = "noop", size: int = 0, total: int = 0
) -> tuple[float, Figures, float | None]:
    """The rate, what a task cost, and the seconds of the bulk before it."""
    total = total or peer.total
    bulk = peer.fill(total, task, size)
    tidy()
    with ExitStack() as life:
        pids = [life.enter_context(peer.work()) for _ in range(peer.processes)]
        until(lambda: peer.left() < total * 0.9)
        before, at_first = spent(pids, redis_pid), max(peer.left(), 1)
        began = time.perf_counter()
        until(peer.is_over)
        rate = at_first / (time.perf_counter() - began)
        return rate, spent(pids, redis_pid).since(before, at_first) | {"memory": memory(pids)}, bulk


def computed(peer: Peer) -> float:
    """The rate of tasks that compute 10 ms, with what the workers take to start."""
    peer.fill(COMPUTED, "compute", 0)
    tidy()
    began = time.perf_counter()
    with ExitStack() as life:
        for _ in range(peer.processes):
            life.enter_context(peer.work())
        until(peer.is_over)
        return COMPUTED / (time.perf_counter() - began)


def tidy() -> None:
    from bench.measured import rows

    vacuum(rows.database)
    with rows.database.statement() as connection:
        connection.exec_driver_sql("CHECKPOINT")


@contextmanager
def old_transaction() -> Iterator[None]:
    """Idle, with a snapshot of now: nothing that dies from here on may be vacuumed."""
    from bench.measured import rows

    with rows.database.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        connection.execute(text("SELECT count(*) FROM celeriac.roles"))
        yield
        connection.rollback()


@contextmanager
def long_readers() -> Iterator[None]:
    """Two, one after the other, each of which begins before the other has ended: somebody always has a snapshot."""
    from bench.measured import rows

    ended = threading.Event()

    def read(late: float) -> None:
        ended.wait(late)
        while not ended.is_set():
            with rows.database.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
                connection.execute(text("SELECT count(*) FROM celeriac.roles"))
                ended.wait(READS)

    with _meanwhile(ended, *(lambda late=late: read(late) for late in (0.0, READS / 2))):
        yield


@contextmanager
def again_and_again(remove: Callable[[], object]) -> Iterator[None]:
    """Removes what has finished, while it is open."""
    ended = threading.Event()

    def removing() -> None:
        while not ended.wait(REMOVES):
            remove()

    with _meanwhile(ended, removing):
        yield


@contextmanager
def _meanwhile(ended: threading.Event, *works: Callable[[], object]) -> Iterator[None]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
