"""What a process leaves behind of the tasks it has begun."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from celeriac.run import traces
from celeriac.run.shared import worker_id
from celeriac.run.traces import ENTRIES, Traces

HERE: Any = SimpleNamespace(url="postgresql://here/one")
ELSEWHERE: Any = SimpleNamespace(url="postgresql://here/another")
FIRST, SECOND = "0c1f7f6a-7c1e-4a0e-9a51-1f0b8c1d2e3f", "0c1f7f6a-7c1e-4a0e-9a51-aaaaaaaaaaaa"


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(traces, "MEMORY", tmp_path)


def killed(*, first: range) -> int:
    """A process that asked for two tickets, began those tasks of the first and none of the second."""
    if (pid := os.fork()) == 0:
        mine = Traces()
        mine.keep(on=True)
        begin = mine.opened(HERE, FIRST)
        for task in first:
            begin(task)
        mine.opened(HERE, SECOND)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid


def test_the_trace_of_a_killed_process_tells_what_had_begun_and_to_its_own_database_alone() -> None:
    pid = killed(first=range(1, 4))
    assert not list(traces.dead(ELSEWHERE.url))
    (trace,) = traces.dead(HERE.url)
    assert (trace.worker_id, trace.pid) == (worker_id(), pid)
    assert trace.unbegun(FIRST, [1, 2, 3, 4, 5]) == [4, 5]
    assert trace.unbegun(SECOND, [1, 2]) == [1, 2]


def test_where_too_much_has_begun_since_all_of_a_ticket_may_have() -> None:
    killed(first=range(1, ENTRIES))
    (trace,) = traces.dead(HERE.url)
    assert trace.unbegun(FIRST, [5000]) == []
    assert trace.unbegun(SECOND, [5000]) == [5000]


def test_a_process_that_lives_is_not_dead_and_leaves_nothing_when_it_ends_in_order() -> None:
    mine = Traces()
    mine.opened(HERE, FIRST)(1)
    assert not list(traces.folder().iterdir())  # of no worker
    mine.keep(on=True)
    mine.opened(HERE, FIRST)(1)
    assert len(list(traces.folder().iterdir())) == 1
    assert not list(traces.dead(HERE.url))
    mine.keep(on=False)
    assert not list(traces.folder().iterdir())
