"""The watch interrupts what runs in the main thread, and nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from celeriac.errors import TaskCancelled
from celeriac.roles.role import Role
from celeriac.run.run import Run
from celeriac.run.start import Started
from celeriac.run.watch import Watch
from celeriac.store.connections import Database

RUN = Run(
    Started(
        id=1, task_id="t", role="work", args=[], kwargs={}, headers=None, retry_count=0, max_retries=3, tries=0,
        max_rounds=1, losses=0, priority=0, timeout=None, parent_id=None, lock_key=None, token="",
    ),
    Role(name="work"),
    Database("postgresql://nobody@127.0.0.1:1/none"),
)  # fmt: skip


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals this process got."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: heard.append(number))
    yield heard
    signal.signal(signal.SIGUSR2, before)


def test_no_signal_is_sent_where_no_handler_was_installed(heard: list[int]) -> None:
    watch = Watch()
    in_another_thread = threading.Thread(target=watch.start)
    in_another_thread.start()
    in_another_thread.join()
    watch.interrupt(RUN, TaskCancelled())
    assert heard == []


def test_only_the_thread_that_runs_tasks_now_is_interrupted(heard: list[int]) -> None:
    """As in tests, where the main thread runs some, and an embedded worker's thread others."""
    watch = Watch()
    watch.start()
    assert watch.hears
    in_another_thread = threading.Thread(target=watch.start)
    in_another_thread.start()
    in_another_thread.join()
    assert not watch.hears
    watch.start()
    assert watch.hears
