"""Alerts outlive what they watch: a beat that is killed is told of by a worker that lives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import Rows, Running, until

FIRES = "SELECT FROM celeriac.alerts WHERE name = 'beat_silent'"


def test_a_beat_that_is_killed_is_told_of_by_a_worker_until_another_ticks(
    shop: ModuleType, worker: Callable[..., Running], rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    quick = QUICK | {"CELERIAC_ALERT_BEAT_MS": "3000"}
    living = worker("-c", "1", CELERIAC_ALERT_BEAT_MS="3000")

    def beat(log: str) -> object:
        return processes.beat("tests.end_to_end.shop", database_url, redis_url, tmp_path / log, quick)

    with beat("first") as first:  # type: ignore[attr-defined]
        until(lambda: rows("SELECT FROM celeriac.beats"), "a tick")
        first.kill()
        until(lambda: rows(FIRES), "the alert")
    assert "Alert beat_silent: beat: none has ticked for" in living.printed()
    with beat("second"):  # type: ignore[attr-defined]
        until(lambda: not rows(FIRES), "its end")
