"""What a worker, a beat and the API server log as JSON: objects only, events of the list, and no secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import dropwhile
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

from celeriac.dispatch.publish import Ticket
from celeriac.logged import EVENTS
from tests import processes
from tests.api.server import serving
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.test_log_lines import MODULE, resyncs
from tests.processes import Rows, Running, until

__all__ = ["resyncs"]

pytestmark = pytest.mark.filterwarnings("ignore:Task name .* is already registered")

CANARY = "canary4711"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"

OFTEN = """INSERT INTO scheduled_jobs (name, target, cron_expression, kwargs)
    VALUES ('often', 'product_resync', '@every 1s', CAST(:kwargs AS jsonb))"""


def objects(log: Path) -> list[dict[str, Any]]:
    """Every line is one, from when logging is set up: before, Celery warns of being root; and what it writes in a
    signal's handler.
    """
    lines = dropwhile(lambda line: not line.startswith("{"), log.read_text().splitlines())
    found = [json.loads(line) for line in lines if line not in ("", "worker: Warm shutdown (MainProcess)")]
    assert all({"at", "level", "logger", "process", "message"} <= one.keys() for one in found)
    assert CANARY not in log.read_text()
    return found


def events(found: list[dict[str, Any]]) -> set[str]:
    told = {one["event"] for one in found if "event" in one}
    assert told <= EVENTS.keys()
    return told


def test_a_worker_and_a_beat_tell_objects_and_no_secret(
    resyncs: ModuleType, worker: Callable[..., Running], rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    running = worker("-c", "1", module=MODULE, CELERIAC_LOG_FORMAT="json")
    headers = {"traceparent": TRACEPARENT}
    good = resyncs.product_resync.apply_async((456,), {"note": CANARY}, headers=headers)
    bad = resyncs.product_resync.delay(457, fail=True, note=CANARY)
    resyncs.app.publisher.publish([Ticket("product_resync", "product_resync", [10**6], str(uuid4()))])
    rows(OFTEN, kwargs=json.dumps({"dispensary_id": 9, "note": CANARY}))
    environ = QUICK | {"CELERIAC_LOG_FORMAT": "json"}
    with processes.beat(MODULE, database_url, redis_url, tmp_path / "beat", environ) as beat:
        until(lambda: rows.one("SELECT count(*) FROM history") >= 3, "all to end")
        assert beat.stop() == 0
    until(lambda: '"ticket.refused"' in running.printed(), "its line")
    assert running.stop() == 0
    told = objects(running.log)
    assert events(told) >= {
        "worker.started", "task.claimed", "task.completed", "task.failed", "ticket.refused", "worker.stopped"
    }  # fmt: skip
    (own,) = [one for one in told if one["message"] == "looking at 456"]
    known = {"task": good.row_id, "task_id": good.id, "role": "product_resync", "attempt": 1, "trace_id": TRACE}
    assert {name: own[name] for name in known} == known
    (failed,) = [one for one in told if one.get("event") == "task.failed"]
    assert (failed["task"], failed["status"], failed["lock_key"]) == (bad.row_id, "failed", "dispensary_id:457")
    of_beat = objects(tmp_path / "beat")
    tick, *_ = [one for one in of_beat if one.get("event") == "schedule.tick"]
    assert (tick["schedule"], tick["target"]) == ("often", "product_resync")
    assert "schedule.tick" in events(of_beat)


def test_the_api_tells_what_it_answered_and_what_operators_change(
    resyncs: ModuleType, rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    resyncs.app.register_roles()
    log = tmp_path / "api"
    with serving(database_url, redis_url, log, app=MODULE, CELERIAC_LOG_FORMAT="json") as api:
        api.post("/api/roles/product_resync/pause", {"why": "maintenance"}, headers={"traceparent": TRACEPARENT})
        body = {"role": "product_resync", "kwargs": {"dispensary_id": 1, "note": CANARY}}
        api.post("/api/tasks", body)
        api.refused(404, "GET", "/api/tasks/4711")
        api.get("/api/tasks", params={"error": CANARY})
        api.ask_with(CANARY, "GET", "/api/tasks")
        tokens = [*api.tokens.values()]
        until(lambda: '"status": 401' in log.read_text(), "the last answer to be told")
    told = objects(log)
    assert events(told) == {"request", "audit", "role.paused"}
    asked = [one for one in told if one.get("event") == "request"]
    assert [(one["method"], one["path"], one["status"]) for one in asked] == [
        ("POST", "/api/roles/product_resync/pause", 200), ("POST", "/api/tasks", 201),
        ("GET", "/api/tasks/4711", 404), ("GET", "/api/tasks", 200), ("GET", "/api/tasks", 401),
    ]  # fmt: skip
    assert (asked[0]["trace_id"], asked[0]["span_id"], asked[0]["address"]) == (TRACE, SPAN, "127.0.0.1")
    assert asked[0]["by"].startswith("admin ")
    assert asked[4]["by"] is None
    (audit,) = [one for one in told if one.get("event") == "audit" and one["kind"] == "role"]
    assert (audit["action"], audit["targets"], audit["why"]) == ("pause", ["product_resync"], "maintenance")
    assert not any(token in log.read_text() for token in tokens)


def test_without_json_the_api_says_nothing_of_requests(
    resyncs: ModuleType, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    with serving(database_url, redis_url, tmp_path / "api", app=MODULE) as api:
        api.get("/api/tasks")
    assert "GET" not in (tmp_path / "api").read_text()
