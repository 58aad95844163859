"""A process's own figures, without a query to Postgres or Redis, on its own port: `CELERIAC_METRICS_ADDRESS`.

A worker's parent and a beat have the port if it is set; otherwise nothing listens and nothing is counted. `/livez`
answers whether the process is live, `/readyz` whether it takes work, both with 200 or 503. A worker that waits for
Redis is live, since a restart would not help.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from typing import TYPE_CHECKING

from celery.worker import state

from celeriac.counters import COUNTERS
from celeriac.metrics.catalogue import METRICS, Source
from celeriac.metrics.read import SCHEDULES_TOLD, Samples
from celeriac.run import shared
from celeriac.schedules.listed import entries
from celeriac.settings import host_and_port
from celeriac.store.forks import after_fork, let_go
from celeriac.worker import request
from celeriac.worker.limits import MEANS
from celeriac.worker.pulse import FRESH, PULSE

if TYPE_CHECKING:
    from celeriac.schedules.beat import Scheduler
    from celeriac.worker.lifeline import Lifeline

logger = logging.getLogger(__name__)

#: Maximum seconds of a request, and seconds between two checks whether the process ends.
PATIENCE, LOOK_EVERY = 5.0, 0.5


Probe = Callable[[], bool]


class ServerOverIPv6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class Port(threading.Thread):
    """Serves `GET /metrics` and probes until `ending`. If its address is taken it logs that; the process runs on."""

    def __init__(
        self, address: str, figures: Callable[[], Samples], probes: Mapping[str, Probe], ending: threading.Event
    ) -> None:
        super().__init__(name="celeriac-metrics", daemon=True)
        self.address = address
        self.figures = figures
        self.probes = probes
        self.ending = ending
        self._listening: list[ThreadingHTTPServer] = []
        after_fork(self._let_go)

    def _let_go(self) -> None:
        """Leave the address to the parent, in a forked child: nobody could take it for as long as the child lives."""
        let_go(self._listening)

    def run(self) -> None:
        try:
            host, port = host_and_port(self.address)
            kind = ServerOverIPv6 if ":" in host else ThreadingHTTPServer
            server = kind((host, port), _handler(self.figures, self.probes))
        except (ImportError, OSError) as error:  # without the extra `metrics`; an address that is taken
            logger.error("CELERIAC_METRICS_ADDRESS=%s: nobody listens there: %s", self.address, error)
            return
        self._listening.append(server)
        server.timeout = LOOK_EVERY
        server.daemon_threads = True
        with server:
            while not self.ending.is_set():
                server.handle_request()


def _handler(figures: Callable[[], Samples], probes: Mapping[str, Probe]) -> type[BaseHTTPRequestHandler]:
    from celeriac.metrics.exporter import CONTENT_TYPE, as_text

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE, as_text(figures()))
            elif probe := probes.get(self.path):
                status = HTTPStatus.OK if probe() else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, "text/plain", b"yes\n" if status is HTTPStatus.OK else b"no\n")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: a scrape is no event."""

    return Handler


def of_worker(lifeline: Lifeline) -> Port | None:
    """Return a worker's port, if one is configured."""
    address = lifeline.settings.metrics_address
    probes = {"/livez": PULSE.is_live, "/readyz": PULSE.is_ready}
    return Port(address, lambda: worker_figures(lifeline), probes, lifeline.ending) if address else None


def worker_figures(lifeline: Lifeline) -> Samples:
    samples, governor = Samples(), lifeline.governor
    roles = [role.name for role in lifeline.served()]
    for role in roles:
        samples.put("worker_tasks_run_total", state.total_count.get(role, 0), role)
        samples.put("kicks_total", request.kicks[role], role)
    _counted(samples, ("worker", "process"), roles)
    samples.put("worker_tickets_active", len(state.active_requests))
    samples.put("worker_tickets_reserved", len(state.reserved_requests))
    samples.put("worker_processes", lifeline.worker.concurrency)
    for means in MEANS:
        samples.put("worker_backing_off", means in governor.back_off.short, means)
    samples.put("worker_draining", lifeline.drain_until is not None)
    samples.put("worker_drain_overdue_seconds", PULSE.overdue())
    samples.put("worker_memory_ratio", governor.usage.memory)
    samples.put("worker_cpu_ratio", governor.usage.cpu)
    samples.put("worker_heartbeat_age_seconds", max(0.0, time.monotonic() - shared.renewed()))
    samples.put("worker_heartbeat_failures_total", lifeline.failures)
    return samples


def of_beat(scheduler: Scheduler) -> Port | None:
    """Return a beat's port, if one is configured."""
    address = scheduler.app.settings.metrics_address
    probes = {
        "/livez": lambda: time.monotonic() - scheduler.moved_at < FRESH,
        "/readyz": lambda: time.monotonic() - scheduler.ticked_at < FRESH,
    }
    return Port(address, lambda: beat_figures(scheduler), probes, scheduler.ending) if address else None


def beat_figures(scheduler: Scheduler) -> Samples:
    samples = Samples()
    roles = [declared.role.name for declared in scheduler.app.roles.all()]
    _counted(samples, ("beat", "process"), roles, _named(scheduler))
    samples.put("beat_ticks_total", scheduler.ticks)
    samples.put("beat_late_seconds", scheduler.late_by)
    samples.put("beat_acts_running", scheduler.acts.under_way())
    return samples


def _named(scheduler: Scheduler) -> list[str]:
    """Return the schedules of the beat config and those that ran here, at most as many as are exported from SQL."""
    ran = (key[1] for key in COUNTERS.known("schedule_ticks_total"))
    return sorted({*entries(scheduler.app), *ran})[:SCHEDULES_TOLD]


def _counted(samples: Samples, sources: Iterable[Source], roles: Iterable[str], schedules: Iterable[str] = ()) -> None:
    """Add the counters: every possible set of labels, also at 0, and no other."""
    of_label = {"role": roles, "schedule": schedules}
    for metric in (metric for metric in METRICS if metric.is_counted and metric.source in sources):
        for labels in product(*(of_label.get(label, metric.values) for label in metric.labels)):
            if metric.is_histogram:
                samples.count(metric.name, *COUNTERS.times(metric.name, *labels), *labels)
            else:
                samples.put(metric.name, COUNTERS.total(metric.name, *labels), *labels)
