"""Spans of OpenTelemetry: a trace goes from the caller through the row to the handler and what it enqueues."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from celery import _state
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, CeleriacError, ConfigurationError, Settings, testing
from celeriac.run.run import Run
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import outcome, running
from tests.processes import Rows
from tests.spelled import SAID, SECRET, is_told

CALLER = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{CALLER}-00f067aa0ba902b7-01"


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """A process has one provider, for good."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


class Spans:
    """Those that have ended."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self.exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    exporter.clear()
    return Spans(exporter)


@pytest.fixture
def app(app: Celeriac) -> Iterator[Celeriac]:
    """As with CELERIAC_OTEL=true."""
    app.settings = replace(app.settings, otel=True)
    before, shared_tasks = _state.get_current_app(), _state._on_app_finalizers
    _state._on_app_finalizers = {task for task in shared_tasks if task.__module__ == "celery.app.builtins"}
    app.set_current()
    with testing.mode("manual"):
        yield app
    before.set_current()
    _state._on_app_finalizers = shared_tasks


@pytest.fixture
def shop(app: Celeriac) -> Mapping[str, Any]:
    @app.task(role="mail")
    def mail(to: str) -> str:
        return to

    @app.task(role="order", fair_by="client", bind=True, max_retries=1, autoretry_for=(ConnectionError,))
    def order(self: Any, client: str, fails: bool = False) -> None:
        if fails and self.request.retries == 0:
            raise ConnectionError("no answer")
        mail.delay(client)

    app.register_roles()
    return {"mail": mail, "order": order}


def ids(span: ReadableSpan) -> tuple[int, int]:
    found = span.get_span_context()
    assert found is not None
    return found.trace_id, found.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return span.parent and (span.parent.trace_id, span.parent.span_id)


def links(span: ReadableSpan) -> Sequence[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_trace_goes_through_the_row_to_the_handler_and_its_follow_ups(
    shop: Mapping[str, Any], spans: Spans, rows: Rows
) -> None:
    with trace.get_tracer("test").start_as_current_span("request") as request:
        task = shop["order"].delay("acme")
    testing.drain()
    sent, ran, mailed, read = (spans.one(n) for n in ("send order", "process order", "send mail", "process mail"))
    chain = [request, sent, ran, mailed, read]
    assert [parent(child) for child in chain[1:]] == [ids(above) for above in chain[:-1]]
    assert [span.kind for span in chain[1:]] == [SpanKind.PRODUCER, SpanKind.CONSUMER] * 2
    about = dict(ran.attributes or {})
    assert about["messaging.message.id"] == dict(sent.attributes or {})["messaging.message.id"] == task.id
    assert {name.removeprefix("celeriac."): about[name] for name in about if name.startswith("celeriac.")} == {
        "task": task.row_id, "role": "order", "account": "acme", "attempt": 1, "round": 1, "outcome": "completed",
        "worker": about["celeriac.worker"],
    }  # fmt: skip
    assert ran.status.is_ok
    kept = rows.one("SELECT headers -> 'headers' ->> 'traceparent' FROM history WHERE role = 'order'")
    assert str(kept)[:-3] == f"00-{ids(sent)[0]:032x}-{ids(sent)[1]:016x}"


def test_an_attempt_that_failed_says_so_and_the_next_is_linked(shop: Mapping[str, Any], spans: Spans) -> None:
    shop["order"].delay("acme", fails=True)
    testing.drain(with_retries=True)
    sent = spans.one("send order")
    first, second = spans.named("process order")
    assert (parent(first), links(first)) == (ids(sent), [])
    assert (first.status.is_ok, first.status.description) == (False, "ConnectionError: no answer")
    (event,) = first.events
    said = dict(event.attributes or {})
    assert (event.name, said["exception.type"], said["exception.message"]) == (
        "exception", "ConnectionError", "no answer"
    )  # fmt: skip
    assert "in order" in str(said["exception.stacktrace"])
    assert dict(first.attributes or {})["celeriac.outcome"] == "retry"
    assert (parent(second), links(second), second.status.is_ok) == (None, [ids(sent)], True)
    assert dict(second.attributes or {})["celeriac.attempt"] == 2
    assert ids(second)[0] != ids(sent)[0]


def test_a_call_without_a_current_span_belongs_to_what_its_headers_say(shop: Mapping[str, Any], spans: Spans) -> None:
    shop["mail"].apply_async(("anna",), headers={"traceparent": TRACEPARENT, "tenant": "a"})
    shop["mail"].apply_async(("bert",), headers={"traceparent": "00-nothing", "tracestate": 7})
    testing.drain()
    sent = spans.named("send mail")
    assert [f"{ids(span)[0]:032x}" == CALLER for span in sent] == [True, False]
    assert [parent(span) for span in spans.named("process mail")] == [ids(span) for span in sent]


def test_a_bulk_is_one_span_whose_rows_all_name_it(shop: Mapping[str, Any], spans: Spans) -> None:
    shop["mail"].bulk([("anna",), ("bert",)])
    testing.drain()
    sent = spans.one("send mail")
    assert dict(sent.attributes or {})["messaging.batch.message_count"] == 2
    assert [parent(span) for span in spans.named("process mail")] == [ids(sent)] * 2


def about(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def test_pass_start_and_settle_of_a_ticket_have_spans_of_their_own(shop: Mapping[str, Any], spans: Spans) -> None:
    """Start and settle are linked with where the tasks come from."""
    shop["mail"].bulk([("anna",), ("bert",)])
    shop["mail"].delay("carl")
    testing.drain()
    sent = {ids(span) for span in spans.named("send mail")}
    passed, received, settled = (spans.named(f"{name} mail") for name in ("dispatch", "receive", "settle"))
    assert {span.kind for span in passed} == {SpanKind.INTERNAL}
    assert {span.kind for span in (*received, *settled)} == {SpanKind.CLIENT}
    assert sum(about(span)["celeriac.claimed"] for span in passed) == 3
    assert max(about(span)["celeriac.accounts"] for span in passed) == 1
    for some, operation in ((received, "receive"), (settled, "settle")):
        assert sum(about(span)["messaging.batch.message_count"] for span in some) == 3
        assert {about(span)["messaging.operation.type"] for span in some} == {operation}
        assert {link for span in some for link in links(span)} == sent
        assert all(len(links(span)) == len({*links(span)}) for span in some)
    assert {parent(span) for span in received} == {None}
    assert all(span.start_time and span.end_time and span.start_time < span.end_time for span in received)


def test_a_settle_within_a_handlers_transaction_belongs_to_its_run(
    app: Celeriac, shop: Mapping[str, Any], spans: Spans
) -> None:
    @app.task(role="writes", bind=True)
    def writes(self: Any) -> None:
        self.session.execute(text("SELECT 1"))

    app.register_roles()
    writes.delay()
    testing.drain()
    assert parent(spans.one("settle writes")) == ids(spans.one("process writes"))


def test_an_outcome_that_postgres_does_not_take_is_an_error_of_its_settle(
    app: Celeriac, database: Database, spans: Spans, shop: Mapping[str, Any]
) -> None:
    (task,) = running(database, new_task("mail"))
    run = Run(task, app.roles.of(shop["mail"]), database)
    run.outcome = replace(outcome(task), task=task._replace(token="no token"))
    with pytest.raises(DBAPIError):
        app.settler.settle([run])
    assert not spans.one("settle mail").status.is_ok


def test_a_pass_that_claims_nothing_says_why(shop: Mapping[str, Any], spans: Spans, app: Celeriac) -> None:
    app.dispatcher.run_pass(app.roles.of(shop["mail"]))
    assert about(spans.one("dispatch mail"))["celeriac.why_nothing"] == "nothing is ready"


def test_what_masks_its_arguments_keeps_its_account_to_itself(shop: Mapping[str, Any], spans: Spans) -> None:
    shop["order"].apply_async(("acme",), argsrepr="(***)")
    testing.drain()
    assert "celeriac.account" not in dict(spans.one("process order").attributes or {})


def test_no_span_tells_a_secret_in_any_spelling(app: Celeriac, spans: Spans, rows: Rows) -> None:
    """Nor does an error's event, or its traceback."""

    @app.task(role="login", sensitive=("password",), max_retries=1, retry_backoff=False, autoretry_for=(LookupError,))
    def login(user: str, password: str) -> str:
        if user == "ann":
            return SAID
        raise (LookupError if user == "late" else ValueError)(SAID)

    app.register_roles()
    for user in ("ann", "late", "nobody"):
        login.delay(user, SECRET)
    with pytest.raises(CeleriacError):
        login.using(expires=-1).delay("ann", password=SECRET, no_such=SECRET)
    testing.drain(with_retries=True, raising=False)
    assert len(spans.named("process login")) == 4
    ended = spans.exporter.get_finished_spans()
    assert [span.name for span in ended if is_told(span.to_json())] == []
    assert "•••" in "".join(span.to_json(indent=None).replace("\\u2022", "•") for span in ended)
    assert not is_told(str(rows("SELECT error_message, why FROM history, task_events")))


def test_a_refused_enqueue_is_an_error_of_its_span(shop: Mapping[str, Any], spans: Spans, app: Celeriac) -> None:
    app.database.dispose()
    app.settings = replace(app.settings, database_url="postgresql://nobody@127.0.0.1:1/none")
    del app.__dict__["database"]
    with pytest.raises(Exception, match="Postgres"):
        shop["mail"].delay("anna")
    assert not spans.one("send mail").status.is_ok


def test_without_the_switch_nothing_is_told(app: Celeriac, spans: Spans, rows: Rows) -> None:
    app.settings = replace(app.settings, otel=False)
    app.__dict__.pop("enqueuer", None)

    @app.task(role="quiet")
    def quiet() -> None: ...

    app.register_roles()
    quiet.delay()
    testing.drain()
    assert spans.exporter.get_finished_spans() == ()
    assert rows.one("SELECT headers FROM history") is None


def test_the_switch_is_true_or_false_and_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Settings.from_environ({}).otel
    assert Settings.from_environ({"CELERIAC_OTEL": "true"}).otel
    assert Settings.from_environ({"CELERIAC_OTEL": "1"}).otel
    with pytest.raises(ConfigurationError, match="CELERIAC_OTEL='yep' is not usable: give true or false"):
        Settings.from_environ({"CELERIAC_OTEL": "yep"})
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'celeriac\[otel\]'"):
        Settings.from_environ({"CELERIAC_OTEL": "true"})
