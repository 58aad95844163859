"""Sentry's own package sees the same beside Celeriac as beside stock Celery: traces, errors, cron monitors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows, until

MODULE = "tests.end_to_end.watched"


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    folder = tmp_path / "sent"
    folder.mkdir()
    return folder


def items(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The kind and the content of each item that Sentry sent."""
    for path in folder.glob("*.envelope"):
        _, *lines = path.read_bytes().splitlines()
        for header, payload in zip(lines[::2], lines[1::2], strict=False):
            yield json.loads(header)["type"], json.loads(payload)


def transactions(folder: Path) -> dict[str, dict[str, Any]]:
    return {said["transaction"]: said for kind, said in items(folder) if kind == "transaction"}


def check_ins(folder: Path) -> list[dict[str, Any]]:
    found = [said for kind, said in items(folder) if kind == "check_in"]
    return sorted(found, key=lambda said: said["status"] != "in_progress")


@pytest.fixture(
    params=[
        pytest.param("stock", marks=pytest.mark.nightly("stock Celery changes when a release of it does")),
        "celeriac",
    ]
)
def environ(
    request: pytest.FixtureRequest, sent: Path, database_url: str, redis_url: str, rows: Rows
) -> dict[str, str]:
    more = {"WATCHED_CELERY": request.param, "WATCHED_SENT": str(sent), "PYTHONPATH": str(ROOT)}
    return {**QUICK, **more, "DATABASE_URL": database_url, "REDIS_URL": redis_url}


def shape(span: dict[str, Any]) -> tuple[str, str | None, list[str]]:
    said = [key for key in span.get("data", {}) if key.startswith("messaging.")]
    return span["op"], span["description"], sorted(said)


QUEUED = ["messaging.destination.name", "messaging.message.id", "messaging.message.retry.count", "messaging.system"]


def test_one_trace_leads_from_the_request_to_its_tasks(
    environ: dict[str, str], sent: Path, tmp_path: Path, database_url: str, redis_url: str
) -> None:
    with processes.worker(MODULE, database_url, redis_url, tmp_path / "worker.log", "-c", "1", environ=environ):
        command = [sys.executable, "-m", MODULE]
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        until(lambda: {"watched.work", "watched.fail"} <= transactions(sent).keys(), "both tasks to be sent")
    trace, found = done.stdout.split()[0], transactions(sent)
    assert {said["contexts"]["trace"]["trace_id"] for said in found.values()} == {trace}
    request = found["a request"]
    assert [shape(span) for span in request["spans"]] == [
        (op, f"watched.{name}", said)
        for name in ("work", "fail")
        for op, said in (("queue.submit.celery", []), ("queue.submit.celery", []), ("queue.publish", QUEUED))
    ]
    (process,) = (span for span in found["watched.work"]["spans"] if span["op"] == "queue.process")
    assert shape(process)[2] == sorted([*QUEUED, "messaging.message.receive.latency"])
    assert 0 <= process["data"]["messaging.message.receive.latency"] < 60_000
    parent = found["watched.work"]["contexts"]["trace"]["parent_span_id"]
    assert parent in {span["span_id"] for span in request["spans"] if span["description"] == "watched.work"}
    errors = [said for kind, said in items(sent) if kind == "event"]
    assert [(one["exception"]["values"][-1]["type"], one["contexts"]["trace"]["trace_id"]) for one in errors] == [
        ("KeyError", trace)
    ]


#: Its first instant is now, also where beat has just written another.
SOON = "UPDATE scheduled_jobs SET next_run_at = now() WHERE name = 'each minute' AND last_run_at IS NULL"

STOCK = pytest.param("stock", marks=pytest.mark.nightly("stock beat waits for the minute that Sentry asks for"))


@pytest.mark.parametrize("environ", [STOCK, "celeriac"], indirect=True)
def test_a_cron_monitor_hears_of_each_instant_that_it_began_and_ended(
    environ: dict[str, str], sent: Path, tmp_path: Path, database_url: str, redis_url: str, rows: Rows
) -> None:
    log = tmp_path / "worker.log"
    with processes.worker(MODULE, database_url, redis_url, log, "-c", "1", environ=environ):
        command = [sys.executable, "-m", "celery", "-A", MODULE, "beat", "-s", str(tmp_path / "schedule")]
        with processes.process(command, environ, tmp_path / "beat.log"):

            def heard() -> bool:
                rows(SOON)  # nothing on stock Celery, which has no such row
                return len(check_ins(sent)) >= 2

            until(heard, "the check-ins", patience=100)
    began, ended = check_ins(sent)[:2]
    assert (began["status"], ended["status"]) == ("in_progress", "ok")
    assert began["check_in_id"] == ended["check_in_id"]
    assert began["monitor_slug"] == ended["monitor_slug"] == "each minute"
    for said in (began, ended):
        assert said["monitor_config"]["schedule"] == {"type": "interval", "value": 1, "unit": "minute"}
    assert ended["duration"] >= 0
