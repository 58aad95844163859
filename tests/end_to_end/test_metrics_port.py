"""Where it is set, a worker and a beat tell on a port what they know without asking Postgres."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from uuid import uuid4

from celeriac.dispatch.publish import Ticket
from celeriac.local.valkey import free_port
from celeriac.metrics.catalogue import METRICS
from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.test_probes import probed
from tests.postgres.test_exporter import MOST_SERIES, Figures, at, parsed
from tests.processes import Rows, Running, until


def asked(port: int) -> Figures:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            return parsed(answer.read())
    except OSError:
        return {}


def told(found: Figures) -> set[str]:
    """Their names, histograms by their own."""
    return {re.sub("_seconds_(bucket|count|sum)$", "_seconds", name) for name, _ in found}


def test_a_worker_tells_what_it_has_run(shop: ModuleType, worker: Callable[..., Running], rows: Rows) -> None:
    port = free_port()
    running = worker("-c", "2", CELERIAC_METRICS_ADDRESS=str(port))
    shop.slow.bulk([(0.01,)] * 5)
    until(lambda: (found := asked(port)) and at(found, "worker_tasks_run_total", role="slow") == 5, "five that ran")
    shop.app.publisher.publish([Ticket("slow", "slow", [10**6], str(uuid4()))])
    until(lambda: at(asked(port), "tickets_total", role="slow", result="lost") == 1, "the ticket that is nobody's")
    found = asked(port)
    assert told(found) == {metric.name for metric in METRICS if metric.source in ("worker", "process")}
    by_role = Counter(dict(labels).get("role") for _, labels in found)
    assert by_role.pop(None) <= MOST_SERIES
    assert 0 < max(by_role.values()) <= MOST_SERIES
    assert at(found, "fence_refusals_total", role="slow", verb="start") == 1
    assert at(found, "tickets_total", role="slow", result="won") >= 1
    assert {at(found, "rescued_total", role="add", reason=why) for why in ("rescue", "worker_lost")} == {0}
    assert at(found, "rows_claimed_total", role="slow") == 5, "passes of its children, told by them with their tickets"
    assert at(found, "pass_results_total", role="slow", result="claimed") >= 1
    assert at(found, "pass_seconds_count", role="slow") >= 1
    assert min(at(found, "sql_seconds_count", verb=verb) for verb in ("start", "settle", "look", "heartbeat")) >= 1
    assert (at(found, "worker_processes"), at(found, "worker_draining")) == (2, 0)
    assert {at(found, "worker_backing_off", reason=means) for means in ("memory", "cpu")} == {0}
    assert at(found, "worker_heartbeat_age_seconds") < 30
    assert at(found, "kicks_total", role="slow") >= 1, "the bulk's, at least"
    assert running.stop() == 0


def test_a_worker_that_backs_off_tells_what_it_is_short_of(shop: ModuleType, worker: Callable[..., Running]) -> None:
    port = free_port()
    short = {"CELERIAC_MEMORY_LIMIT_MB": "450", "MEMORY_BACKOFF_THRESHOLD": "0.01", "CPU_BACKOFF_THRESHOLD": "1"}
    worker("-c", "1", CELERIAC_METRICS_ADDRESS=str(port), **short)

    until(lambda: (found := asked(port)) and at(found, "worker_backing_off", reason="memory") == 1, "the back-off")
    assert at(asked(port), "worker_backing_off", reason="cpu") == 0


def test_a_beat_tells_that_it_ticks_and_a_taken_port_stops_nobody(
    shop: ModuleType, rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    port = free_port()
    environ = QUICK | {"CELERIAC_METRICS_ADDRESS": f"127.0.0.1:{port}"}

    def beat(log: str) -> object:
        return processes.beat("tests.end_to_end.shop", database_url, redis_url, tmp_path / log, environ)

    with beat("one") as first:  # type: ignore[attr-defined]
        rescue = {"schedule": "sweep rescue"}
        until(lambda: (found := asked(port)) and at(found, "schedule_ticks_total", **rescue) > 1, "ticks")
        found = asked(port)
        assert told(found) == {metric.name for metric in METRICS if metric.source in ("beat", "process")}
        assert {"batcher slow", "sweep review"} <= {dict(labels).get("schedule") for _, labels in found}
        assert max(Counter(dict(labels).get("role") for _, labels in found).values()) <= MOST_SERIES
        assert probed(port) == (200, 200)
        with beat("two") as second:  # type: ignore[attr-defined]
            until(lambda: "nobody listens there" in second.printed(), "its line")
            until(lambda: rows.one("SELECT count(*) FROM beats") == 2, "both to tick")
        assert first.stop() == 0
