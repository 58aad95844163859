"""Where it is set, a worker and a beat tell on a port what they know without asking Postgres."""

from __future__ import annotations

import urllib.request
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
from tests.postgres.test_exporter import Figures, at, parsed
from tests.processes import Rows, Running, until


def asked(port: int) -> Figures:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            return parsed(answer.read())
    except OSError:
        return {}


def test_a_worker_tells_what_it_has_run(shop: ModuleType, worker: Callable[..., Running], rows: Rows) -> None:
    port = free_port()
    running = worker("-c", "2", CELERIAC_METRICS_ADDRESS=str(port))
    shop.slow.bulk([(0.01,)] * 5)
    until(lambda: (found := asked(port)) and at(found, "worker_tasks_run_total", role="slow") == 5, "five that ran")
    shop.app.publisher.publish([Ticket("slow", "slow", [10**6], str(uuid4()))])
    until(lambda: at(asked(port), "worker_tasks_lost_total", role="slow") == 1, "the ticket that is nobody's")
    found = asked(port)
    assert {name for name, _ in found} == {metric.name for metric in METRICS if metric.source == "worker"}
    assert (at(found, "worker_processes"), at(found, "worker_backing_off"), at(found, "worker_draining")) == (2, 0, 0)
    assert at(found, "worker_heartbeat_age_seconds") < 30
    assert at(found, "kicks_total", role="slow") >= 1, "the bulk's, at least"
    assert running.stop() == 0


def test_a_beat_tells_that_it_ticks_and_a_taken_port_stops_nobody(
    shop: ModuleType, rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    port = free_port()
    environ = QUICK | {"CELERIAC_METRICS_ADDRESS": f"127.0.0.1:{port}"}

    def beat(log: str) -> object:
        return processes.beat("tests.end_to_end.shop", database_url, redis_url, tmp_path / log, environ)

    with beat("one") as first:  # type: ignore[attr-defined]
        until(lambda: (found := asked(port)) and at(found, "beat_ticks_total") > 1, "ticks")
        assert probed(port) == (200, 200)
        with beat("two") as second:  # type: ignore[attr-defined]
            until(lambda: "nobody listens there" in second.printed(), "its line")
            until(lambda: rows.one("SELECT count(*) FROM beats") == 2, "both to tick")
        assert first.stop() == 0
