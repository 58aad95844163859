"""`celery worker -B`: one process more, which ticks as `celery beat` does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import processes
from tests.processes import Rows, Running, until

MODULE = "tests.end_to_end.embedded"

COMPLETED = "SELECT count(*) FROM worker_tasks WHERE enqueued_by = 'schedule often' AND status = 'completed'"


def test_a_worker_with_beat_enqueues_and_runs_and_stops(
    worker: Callable[..., Running], rows: Rows, tmp_path: Path
) -> None:
    running = worker("-B", "-c", "1", module=MODULE)
    until(lambda: rows.one(COMPLETED) > 2, "three instants")  # type: ignore[operator]
    until(lambda: rows("SELECT FROM celeriac.scheduled_jobs WHERE last_report IS NOT NULL"), "a sweep")
    assert running.stop() == 0
    assert rows("SELECT FROM celeriac.beats") == [], "it said that it ends"
    assert "Traceback" not in running.printed()


@pytest.mark.parametrize("command", [["worker", "-B"], ["beat"]])
def test_what_cannot_be_kept_is_refused_in_a_line(
    command: list[str], database_url: str, redis_url: str, tmp_path: Path
) -> None:
    given = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "MOON": "true"}
    args = [sys.executable, "-m", "celery", "-A", MODULE, *command]
    last = processes.refusal(args, given, tmp_path / "log")
    assert last == "Error: beat_schedule['moon']: a nowfun cannot be kept: instants are of the database's clock"
