"""What a worker leaves behind: what its tasks may have started, and nothing that its application has."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from celeriac.worker.lifeline import Lifeline
from celeriac.worker.overdue import LeftBehind
from tests.processes import until

Start = Callable[[str], psutil.Process]

#: A program that has started another, and waits.
PARENT = "sleep 300 & echo $!; wait"


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def start(command: str = "exec sleep 300") -> psutil.Process:
        begun.append(subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True))
        process = psutil.Process(begun[-1].pid)
        if command == PARENT:
            until(process.children, "its child")
        return process

    yield start
    for one in begun:
        for process in (*psutil.Process(one.pid).children(recursive=True), one):
            process.kill()
        one.communicate()


def ends(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("stops", [True, False])
def test_what_its_application_has_started_is_never_touched(
    start: Start, caplog: pytest.LogCaptureFixture, stops: bool
) -> None:
    """Nor what that has started since."""
    of_the_app, left = start(PARENT), LeftBehind()
    (below,) = of_the_app.children()
    left._spared.add(of_the_app)
    left.look([os.getpid()])
    left.part(stops=stops)
    assert not any(map(ends, (of_the_app, below)))
    assert not [line for line in caplog.messages if str(below.pid) in line or str(of_the_app.pid) in line]


def test_what_is_there_before_the_first_task_is_the_applications(start: Start) -> None:
    of_the_app, child_of_the_pool = start("exec sleep 300"), start(PARENT)
    left = LeftBehind()
    left.spare([child_of_the_pool.pid])
    assert of_the_app in left._spared
    assert child_of_the_pool not in left._spared


def test_what_is_handed_back_takes_its_processes_with_it_where_tasks_share_the_workers(start: Start) -> None:
    """Also what came since the worker began to drain."""
    left = LeftBehind()
    left.spare([os.getpid()])
    seen = start("exec sleep 300")
    left.look([os.getpid()])
    late = start("exec sleep 300")
    left.part(stops=True)
    until(lambda: ends(seen) and ends(late), "both to end")


def test_a_pool_of_processes_stops_nothing_that_goes_on_below_the_worker(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """As what an ended task of another child has started: its child's end does not end it."""
    child_of_the_pool, left = start(PARENT), LeftBehind()
    (started,) = child_of_the_pool.children()
    left.look([child_of_the_pool.pid])
    left.look([os.getpid()])  # the pool has closed
    left.part(stops=True)
    assert not ends(started)
    assert any(f"sleep ({started.pid}), which its tasks may have started, goes on" in line for line in caplog.messages)


def test_tickets_are_handed_back_whatever_it_leaves_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[str] = []

    def broken(**_: Any) -> None:
        assert reported
        raise RuntimeError("Set changed size during iteration")

    lifeline = Lifeline.__new__(Lifeline)
    lifeline.left_behind = SimpleNamespace(part=broken)  # type: ignore[assignment]
    lifeline.parted = True
    monkeypatch.setattr(Lifeline, "_report_end", lambda _: reported.append("ended"))
    with caplog.at_level(logging.ERROR):
        Lifeline._report_and_part(lifeline)
    assert "The processes that the worker leaves behind could not be listed" in caplog.text
