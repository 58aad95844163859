"""What workers and a beat ask of Postgres while there is nothing to do, with every setting at its default."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from tests import processes
from tests.processes import until

#: Transactions a second: of a worker whatever its roles, and of what is there for all workers.
OF_A_WORKER, OF_ALL = 2, 6

#: Seconds over which they are counted.
WINDOW = 10.0

COUNT = text("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = :name")


@pytest.fixture
def counted(database_url: str) -> Iterator[Callable[[], float | None]]:
    """Transactions a second of the last `WINDOW`; None before there is one. Counted from another database."""
    url = make_url(database_url)
    engine = create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    seen: deque[tuple[float, int]] = deque()

    def count() -> float | None:
        with engine.connect() as connection:
            seen.append((time.monotonic(), connection.execute(COUNT, {"name": url.database}).scalar_one()))
        if seen[-1][0] - seen[0][0] < WINDOW:
            return None
        (since, before), (now, after) = seen.popleft(), seen[-1]
        return (after - before) / (now - since)

    yield count
    engine.dispose()


@pytest.mark.parametrize(
    ("roles", "workers", "most"), [(50, 1, OF_A_WORKER), (1, 3, 3 * OF_A_WORKER + OF_ALL)], ids=["roles", "workers"]
)
def test_who_has_nothing_to_do_asks_little(
    database_url: str, redis_url: str, tmp_path: Path, counted: Callable[[], float | None], roles: int, workers: int,
    most: int,
) -> None:  # fmt: skip
    """Three workers have a beat beside them."""
    environ = {"ROLES": str(roles)}
    with ExitStack() as stack:
        for n in range(workers):
            name, log = f"w{n}@%h", tmp_path / f"{n}.log"
            stack.enter_context(
                processes.worker("tests.end_to_end.idle", database_url, redis_url, log, "-n", name, environ=environ)
            )
        if workers > 1:
            log = tmp_path / "beat.log"
            stack.enter_context(processes.beat("tests.end_to_end.idle", database_url, redis_url, log, environ))
        until(lambda: (rate := counted()) is not None and rate <= most, f"at most {most} transactions a second")
