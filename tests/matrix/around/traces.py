"""Datadog, New Relic and Elastic see what they see beside stock Celery: one trace, from the request to its tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.matrix.around.agents import AGENTS, ENVIRON
from tests.processes import ROOT, until

MODULE = "tests.matrix.around.watched"

Spans = list[dict[str, Any]]


def sent(folder: Path) -> Spans:
    return [json.loads(path.read_text()) for path in folder.glob("*.span")]


def tree(spans: Spans) -> Counter[tuple[str, ...]]:
    """How often there is each path of names, from the request down, with what failed marked."""
    by_id = {span["id"]: span for span in spans}

    def path(span: dict[str, Any]) -> tuple[str, ...]:
        above = by_id.get(span["parent"])
        return (*(path(above) if above else ()), span["name"] + "!" * span["error"])

    return Counter(map(path, spans))


def watched(agent: str, celery: str, folder: Path, database_url: str, redis_url: str, runs: int) -> Spans:
    """Return the spans of a request and of its tasks, once so many runs are known."""
    folder.mkdir()
    said = {"WATCHED_AGENT": agent, "WATCHED_CELERY": celery, "WATCHED_SENT": str(folder), **ENVIRON[agent]}
    environ = {**QUICK, **said, "PYTHONPATH": str(ROOT), "DATABASE_URL": database_url, "REDIS_URL": redis_url}
    log = folder.parent / f"{folder.name}.log"
    with processes.worker(
        MODULE, database_url, redis_url, log, "-c", "1", "-Q", f"celery,{folder.name}", environ=environ
    ):
        command = [sys.executable, "-m", MODULE]
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr[-3000:]
        until(lambda: len(sent(folder)) >= runs, "the spans of all tasks", patience=60)
    return sent(folder)


#: How many spans each agent has of a request that sends two tasks, of which one sends another and one fails.
SPANS = {"ddtrace": 7, "elastic": 5, "newrelic": 4}


@pytest.mark.parametrize("agent", AGENTS)
def test_one_trace_leads_from_the_request_to_its_tasks_as_on_stock(
    agent: str, tmp_path: Path, database_url: str, redis_url: str
) -> None:
    stock, ours = (
        watched(agent, celery, tmp_path / celery, database_url, redis_url, SPANS[agent]) for celery in ("stock", "ours")
    )
    assert len({span["trace"] for span in stock}) == len({span["trace"] for span in ours}) == 1
    assert tree(stock) == tree(ours)
    assert any("fail" in name and name.endswith("!") for path in tree(ours) for name in path)
