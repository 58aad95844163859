"""The way of a task through the code is short: how many of the engine's functions it calls, in how many files.

Each call counts, a comprehension's and each resumption of a generator as well: as Python's profiler has them.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from celeriac import Settings
from tests import processes
from tests.processes import Rows, until

#: Of a warm process: from the arrival of its ticket in the child to its settle, and of `.delay()`.
CALLS, FILES = 110, 31
OF_DELAY, FILES_OF_DELAY = 40, 18

#: Tasks that warm the process up, and calls of which the shortest counts: the others may meet what earlier tests left.
WARM = REPEATED = 5


@pytest.fixture
def traced(database_url: str, redis_url: str) -> Iterator[ModuleType]:
    module = importlib.import_module("tests.end_to_end.traced")
    for name in ("database", "publisher", "enqueuer", "by_name", "limited", "tally"):
        module.app.__dict__.pop(name, None)
    module.app.settings = Settings.from_environ({"DATABASE_URL": database_url, "REDIS_URL": redis_url})
    module.app.conf.broker_url = redis_url
    module.app.register_roles()
    yield module
    module.app.publisher.close()
    module.app.database.dispose()


def written(calls: list[tuple[str, str]]) -> str:
    return "\n".join([f"{len(calls)} calls in {len({file for file, _ in calls})} files", *map("  ".join, calls)])


@pytest.mark.parametrize("role", ["sent", "woken"])
def test_a_task_in_a_warm_child_goes_a_short_way(
    traced: ModuleType, rows: Rows, database_url: str, redis_url: str, tmp_path: Path, role: str
) -> None:
    """`sent`: by a ticket's message; `woken`: by a wake-up, as a lone task of an idle role does."""
    trace, task = tmp_path / "trace", getattr(traced, role)
    with processes.worker(
        "tests.end_to_end.traced", database_url, redis_url, tmp_path / "log", "-c", "1",
        environ={"TRACED": str(trace)},
    ):  # fmt: skip
        for n in range(1, WARM + 1):
            task.delay(n)
            if role == "sent":
                traced.app.dispatcher.dispatch(task.role)
            until(lambda n=n: rows.one("SELECT count(*) FROM history") == n, "the task to end")  # type: ignore[misc]
            until(lambda n=n: trace.exists() and len(trace.read_text().splitlines()) >= n, "its trace")  # type: ignore[misc]
    calls = [[(file, call) for file, call in json.loads(line)] for line in trace.read_text().splitlines()]
    shortest = min(filter(None, calls), key=len)
    assert len(shortest) <= CALLS, written(shortest)
    assert len({file for file, _ in shortest}) <= FILES, written(shortest)


@pytest.mark.usefixtures("traced")
def test_delay_goes_a_short_way(database_url: str, redis_url: str) -> None:
    """In a process of its own, where nobody has left a listener to signals."""
    environ = {**os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(processes.ROOT)}
    told = processes.finished([sys.executable, "-m", "tests.end_to_end.traced", str(WARM + REPEATED)], environ)
    assert told.returncode == 0, told.stderr
    shortest = min(([(file, call) for file, call in calls] for calls in json.loads(told.stdout)[WARM:]), key=len)
    assert len(shortest) <= OF_DELAY, written(shortest)
    assert len({file for file, _ in shortest}) <= FILES_OF_DELAY, written(shortest)
