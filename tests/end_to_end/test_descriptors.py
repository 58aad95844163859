"""A process that has used up its file descriptors begins nothing more, fails no task, and another takes its place."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from types import ModuleType

from tests.processes import Rows, Running, until

Worker = Callable[..., Running]

ENDED = "SELECT count(*) FROM worker_tasks WHERE status IN ('completed', 'failed')"


def test_what_shares_a_process_with_one_that_spills_descriptors_is_not_failed(
    shop: ModuleType, worker: Worker, rows: Rows
) -> None:
    shop.spiller.bulk([(8,)] * 40)
    running = worker("-c", "2")
    until(lambda: rows.one(ENDED) == 40, "all to end")
    assert rows("SELECT DISTINCT status, losses, retry_count FROM worker_tasks") == [("completed", 0, 0)]
    until(lambda: "makes way for another" in running.printed(), "it to say so")
    assert "exited with" not in running.printed()


def test_a_worker_that_runs_its_tasks_itself_ends_in_good_order(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    shop.spiller.bulk([(8,)] * 40)
    running = worker("-P", "solo")
    until(lambda: running.process.poll() is not None, "it to end")
    assert "has hardly a file descriptor left" in running.printed()
    assert rows.one("SELECT coalesce(max(losses), 0) FROM worker_tasks") == 0
    assert rows("SELECT FROM tickets WHERE worker_id IS NOT NULL") == []


def test_what_running_tasks_have_open_is_no_leak(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    """Seven eighths of the limit are in use by tasks that run: nothing more begins until some of them have ended."""
    running = worker("-P", "asyncio", "-Q", "reader", "-c", "200")
    most = len(os.listdir(f"/proc/{running.process.pid}/fd")) + 215
    resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (most, most))
    shop.reader.bulk([(1,)] * 450)
    until(lambda: rows.one(ENDED) == 450, "all to end")
    assert rows("SELECT DISTINCT status, losses, retry_count FROM worker_tasks") == [("completed", 0, 0)]
    assert running.process.poll() is None
    printed = running.printed()
    assert f"backing off: Hardly a file descriptor is left of {most}" in printed
    assert "resuming normal operation" in printed
    assert "finishes what it has" not in printed


def test_a_worker_has_as_many_as_its_slots_need(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    """The soft limit of its process is less than its slots need."""
    shop.reader.bulk([(1,)] * 300)
    running = worker("-P", "asyncio", "-Q", "reader", "-c", "300", module="tests.end_to_end.narrow")
    until(lambda: rows.one(ENDED) == 300, "all to end")
    assert rows("SELECT DISTINCT status, losses, retry_count FROM worker_tasks") == [("completed", 0, 0)]
    assert "Open files: up to 856, for its slots; the soft limit was 128" in running.printed()


def test_fewer_than_its_slots_need_are_named(worker: Worker) -> None:
    running = worker("-P", "asyncio", "-Q", "reader", "-c", "1000", module="tests.end_to_end.narrow")
    assert "This process may have 1024 files open, and 1000 tasks at once may need more" in running.printed()
