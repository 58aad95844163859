"""The worker that a module's tests share is as new for each: else there is another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from tests.end_to_end.kept import REST, SHOP, Kept, kept
from tests.processes import Running, until

__all__ = ["kept"]

SILENCE = "INSERT INTO celeriac.alert_silences (name, until, by) VALUES ('queue_depth', now(), 'ann')"

WHAT_WAS = (
    "INSERT INTO celeriac.alerts (name, subject, value, threshold) VALUES ('queue_depth', 'add', 2, 1)",
    "INSERT INTO celeriac.minutes_in_all (role) VALUES ('add')",
    "INSERT INTO ran (what) VALUES ('begin')",
)


def begun(kept: Kept) -> Running:
    return kept.worker(SHOP, ("-c", "1"), {})


def test_what_was_is_forgotten(kept: Kept) -> None:
    running = begun(kept)
    for statement in WHAT_WAS:
        kept.rows(statement)
    kept.redis.set("celery-task-meta-1", "{}")
    kept.end_test()
    assert begun(kept) is running
    for table in ("alerts", "minutes_in_all", "ran"):
        assert kept.rows(f"SELECT * FROM {table}") == []
    assert kept.redis.get("celery-task-meta-1") is None


TOLD: dict[str, Callable[[Kept, Celery], Any]] = {
    "a silence": lambda kept, _: kept.rows(SILENCE),
    "a larger pool": lambda _, app: app.control.pool_grow(1, reply=True, timeout=10, limit=1),
    "events": lambda _, app: app.control.enable_events(reply=True, timeout=10, limit=1),
}


@pytest.mark.parametrize("what", TOLD)
def test_what_stays_has_the_worker_made_anew(kept: Kept, what: str) -> None:
    running = begun(kept)
    with Celery("stock", broker=kept.redis_url, set_as_current=False) as app:
        until(lambda: app.control.ping(timeout=1, limit=1), "it to hear")
        app.control.inspect(timeout=10, limit=1).stats()
        app.control.revoke("nobody", reply=True, timeout=10, limit=1)
        kept.end_test()
        assert begun(kept) is running, "who asked has changed nothing"
        assert TOLD[what](kept, app) != {}
    kept.end_test()
    assert begun(kept) is not running
    assert kept.rows("SELECT * FROM celeriac.alert_silences") == []


def test_what_it_prints_late_is_the_last_tests(kept: Kept) -> None:
    running = begun(kept)
    kept.end_test()
    last = time.time() + 3 * REST
    with running.log.open("a") as log:
        log.write("late")
    os.utime(running.log, (last, last))
    assert begun(kept) is running
    assert time.time() > running.log.stat().st_mtime + REST  # the worker may have printed meanwhile
    assert "late" not in running.printed()
