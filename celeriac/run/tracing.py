"""OpenTelemetry spans (the extra `otel`; `CELERIAC_OTEL=true`) for each enqueue, pass, start, run and settle.

The provider is the application's: this gets a tracer from the API, and without an SDK nothing is recorded. A row
keeps its enqueue's span in its headers, as `traceparent` and `tracestate` (W3C Trace Context).
Names and attributes are those of the semantic conventions for messaging, v1.44: a first attempt belongs to its caller's
trace; a later one begins a trace of its own, with a link to that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from celery import signals
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from celeriac.dispatch.passes import Dispatcher, Own, Pass
from celeriac.enqueue.rows import NewTask
from celeriac.roles.role import Role
from celeriac.run.app import HandlerApp
from celeriac.run.execute import Direct, execute
from celeriac.run.run import Run
from celeriac.run.sessions import HandlersSession
from celeriac.run.settler import Settler
from celeriac.run.shared import worker_id
from celeriac.settle.outcome import LOST, Started, masked
from celeriac.store.states import CANCELLED, COMPLETED
from celeriac.version import __version__

T = TypeVar("T")

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM = {"messaging.system": "celeriac"}

#: Maximum characters of an error in a span.
MOST = 500

_tracer = trace.get_tracer("celeriac", __version__, schema_url=SCHEMA)

_w3c = TraceContextTextMapPropagator()


def traced(insert: Callable[[list[NewTask], Any], T]) -> Callable[[list[NewTask], Any], T]:
    """Wrap an insert in a span, which its rows keep as their origin."""

    def inserting(tasks: list[NewTask], bound: Any) -> T:
        with _sending(tasks):
            carrier: dict[str, Any] = {}
            _w3c.inject(carrier)
            return insert([_with(task, carrier) for task in tasks] if carrier else tasks, bound)

    return inserting


def executed(app: HandlerApp, run: Run, direct: Direct | None = None) -> None:
    """Call `execute` in a span, which is the current one for the handler and what it enqueues."""
    parent, links = _origin(run.task)
    about = _of_run(run)
    name = f"process {run.role.name}"
    with _tracer.start_as_current_span(name, parent, SpanKind.CONSUMER, about, links) as span:
        execute(app, run, direct)
        _tell_end(span, run)


def received(role: Role, ask: Callable[[bool], Sequence[Started]]) -> Callable[[bool], Sequence[Started]]:
    """Wrap the start of a ticket's tasks in a span that is linked to each task's origin.

    A start without tasks has no span: many wake-ups come after others have taken the tasks.
    """

    def asking(again: bool) -> Sequence[Started]:
        began = time.time_ns()
        if started := ask(again):
            links = _links(started)
            about = _of_batch(role.name, "receive", len(started))
            _tracer.start_span(f"receive {role.name}", Context(), SpanKind.CLIENT, about, links, began).end()
        return started

    return asking


class TracedSettler(Settler):
    """A settler with a span for each settle of a ticket's tasks, or of a run with a session."""

    def _settle_together(self, runs: Sequence[Run]) -> None:
        with _settling(runs):
            super()._settle_together(runs)

    def settle_with_session(self, run: Run, session: HandlersSession) -> None:
        with _settling([run]):
            super().settle_with_session(run, session)


class TracedDispatcher(Dispatcher):
    """A dispatcher with a span for each pass, inside the span that caused it."""

    def run_pass(self, role: Role, own: Own | None = None) -> Pass:
        with _tracer.start_as_current_span(f"dispatch {role.name}", kind=SpanKind.INTERNAL) as span:
            done = super().run_pass(role, own)
            claimed = sum(len(ticket.ids) for ticket in done.tickets)
            span.set_attributes({"celeriac.role": role.name, "celeriac.claimed": claimed})
            span.set_attributes({"celeriac.tickets": len(done.tickets), "celeriac.accounts": done.accounts})
            if done.why_nothing is not None:
                span.set_attribute("celeriac.why_nothing", done.why_nothing)
        return done


@contextmanager
def _settling(runs: Sequence[Run]) -> Iterator[None]:
    (role, *_) = (run.role.name for run in runs)
    about = _of_batch(role, "settle", len(runs))
    links = _links(run.task for run in runs)
    with _tracer.start_as_current_span(f"settle {role}", kind=SpanKind.CLIENT, attributes=about, links=links):
        yield


def _of_batch(role: str, operation: str, n: int) -> dict[str, Any]:
    return SYSTEM | {
        "messaging.operation.name": operation, "messaging.operation.type": operation,
        "messaging.destination.name": role, "messaging.batch.message_count": n, "celeriac.worker": worker_id(),
    }  # fmt: skip


@contextmanager
def _sending(tasks: Sequence[NewTask]) -> Iterator[None]:
    roles = sorted({task.role for task in tasks})
    name = f"send {roles[0]}" if len(roles) == 1 else "send"
    about: dict[str, Any] = SYSTEM | {"messaging.operation.name": "enqueue", "messaging.operation.type": "send"}
    about |= {"messaging.destination.name": roles[0]} if len(roles) == 1 else {}
    about |= {"messaging.batch.message_count": len(tasks)} if len(tasks) > 1 else {}
    about |= {"messaging.message.id": tasks[0].task_id} if len(tasks) == 1 else {}
    with _tracer.start_as_current_span(name, _callers(tasks), SpanKind.PRODUCER, about):
        yield


def _callers(tasks: Sequence[NewTask]) -> Context | None:
    """Return the context of the call's own headers; None if there is a current span."""
    if trace.get_current_span().get_span_context().is_valid or not tasks:
        return None
    return _w3c.extract(_own(tasks[0].headers))


def _with(task: NewTask, carrier: Mapping[str, Any]) -> NewTask:
    return replace(task, headers={**(task.headers or {}), "headers": {**_own(task.headers), **carrier}})


def _own(headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the call's own headers, among those the row keeps of its message."""
    own = (headers or {}).get("headers")
    return dict(own) if isinstance(own, Mapping) else {}


def _origin(task: Started) -> tuple[Context, Sequence[Link]]:
    """Return the context that the run's span belongs to, and its links."""
    if not (task.retry_count or task.tries or task.losses):
        return _callers_of(task), ()
    return Context(), _links([task])


def _callers_of(task: Started) -> Context:
    said = {name: value for name, value in _own(task.headers).items() if isinstance(value, str)}
    return _w3c.extract(said, Context())


def _links(tasks: Iterable[Started]) -> list[Link]:
    """Return links to the spans that enqueued these tasks, each once."""
    contexts: dict[tuple[int, int], SpanContext] = {}
    for task in tasks:
        origin = trace.get_current_span(_callers_of(task)).get_span_context()
        if origin.is_valid:
            contexts[origin.trace_id, origin.span_id] = origin
    return [*map(Link, contexts.values())]


def _of_run(run: Run) -> dict[str, Any]:
    task = run.task
    whose = {} if masked(task.headers) or not task.account else {"celeriac.account": task.account}
    return SYSTEM | whose | {
        "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": task.role, "messaging.message.id": task.task_id,
        "celeriac.task": task.id, "celeriac.role": task.role, "celeriac.worker": worker_id(),
        "celeriac.attempt": task.retry_count + 1, "celeriac.round": task.tries + 1,
    }  # fmt: skip


def _tell_end(span: Span, run: Run) -> None:
    """Write the outcome to the span. An error that is retried is still the error of this attempt."""
    outcome = run.outcome
    if outcome is None:
        return
    span.set_attribute("celeriac.outcome", outcome.kind or outcome.status)
    if outcome.error is None or outcome.status in (COMPLETED, CANCELLED) or outcome.kind == "snooze":
        return
    kind, _, said = outcome.error.partition(": ") if outcome.status != LOST else (LOST, "", outcome.error)
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, outcome.error[:MOST])
    about = {"exception.type": kind, "exception.message": said[:MOST]}
    span.add_event("exception", about | ({"exception.stacktrace": run.traceback} if run.traceback else {}))


@signals.worker_process_shutdown.connect(weak=False)
def _flush(**_: Any) -> None:
    """Flush spans: a process of a pool ends without Python's exit hooks."""
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        flush(2_000)
