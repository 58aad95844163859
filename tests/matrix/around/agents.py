"""Tracing agents as their pages say to start them, with files in the place of what receives their spans."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

#: The environment of each, beside how it is started.
ENVIRON = {
    "ddtrace": {
        "DD_CELERY_DISTRIBUTED_TRACING": "true", "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
        "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    },
    "elastic": {},
    "newrelic": {
        "NEW_RELIC_DEVELOPER_MODE": "true", "NEW_RELIC_LICENSE_KEY": "0" * 40, "NEW_RELIC_APP_NAME": "watched",
        "NEW_RELIC_STARTUP_TIMEOUT": "30", "NEW_RELIC_LOG": "stderr",
    },
}  # fmt: skip


def keep(name: str, trace: Any, identity: Any, parent: Any, error: bool = False) -> None:
    """Write a span to a file of its own; `parent` is the identity of the one it belongs to."""
    folder = Path(os.environ["WATCHED_SENT"])
    said = {"name": name, "trace": str(trace), "id": str(identity), "parent": str(parent), "error": error}
    unfinished = folder / f".{uuid4()}"
    unfinished.write_text(json.dumps(said))
    unfinished.rename(folder / f"{uuid4()}.span")


class Agent(ABC):
    @abstractmethod
    def start(self) -> None:
        """Before Celery is imported, where the agent's page says so."""

    @contextmanager
    @abstractmethod
    def request(self) -> Iterator[None]:
        """A web request's span."""


class Datadog(Agent):
    def start(self) -> None:
        from ddtrace import patch
        from ddtrace.trace import TraceFilter, tracer

        class Kept(TraceFilter):  # type: ignore[misc]
            def process_trace(self, trace: Any) -> None:
                for span in trace:
                    name = f"{span.name} {span.resource}"
                    keep(name, span.trace_id, span.span_id, span.parent_id, error=bool(span.error))

        tracer.configure(trace_processors=[Kept()])
        patch(celery=True)

    @contextmanager
    def request(self) -> Iterator[None]:
        from ddtrace.trace import tracer

        with tracer.trace("a", resource="request"):
            yield


class Elastic(Agent):
    def start(self) -> None:
        import elasticapm
        from elasticapm.contrib.celery import register_exception_tracking, register_instrumentation
        from elasticapm.transport.base import Transport

        class Kept(Transport):  # type: ignore[misc]
            def start_thread(self, pid: int | None = None) -> None: ...

            def queue(self, event_type: str, data: Any, flush: bool = False) -> None:
                if event_type == "error":
                    keep(f"error {data['exception']['type']}", data["trace_id"], data["id"], data["parent_id"], True)
                elif event_type == "transaction":
                    is_error = data["outcome"] == "failure"
                    keep(data["name"], data["trace_id"], data["id"], data.get("parent_id"), is_error)

        globals()["Kept"] = Kept
        self.client = elasticapm.Client(
            service_name="watched", transport_class=f"{__name__}.Kept", central_config=False, cloud_provider="none",
            metrics_interval="0s", disable_metrics="*", breakdown_metrics=False,
        )  # fmt: skip
        register_exception_tracking(self.client)
        register_instrumentation(self.client)

    @contextmanager
    def request(self) -> Iterator[None]:
        self.client.begin_transaction("request")
        yield
        self.client.end_transaction("a request", "OK")


class NewRelic(Agent):
    def start(self) -> None:
        import newrelic.agent
        from newrelic.core import stats_engine

        original = stats_engine.StatsEngine.record_transaction

        def record(engine: Any, transaction: Any) -> Any:
            said = transaction.distributed_trace_intrinsics
            name = transaction.path
            keep(name, said["traceId"], said["guid"], said.get("parentId"), error=bool(transaction.errors))
            return original(engine, transaction)

        stats_engine.StatsEngine.record_transaction = record
        newrelic.agent.initialize()
        newrelic.agent.register_application(timeout=30.0)

    @contextmanager
    def request(self) -> Iterator[None]:
        import newrelic.agent

        with newrelic.agent.BackgroundTask(newrelic.agent.application(), "a request"):
            yield


AGENTS: dict[str, type[Agent]] = {"ddtrace": Datadog, "elastic": Elastic, "newrelic": NewRelic}
