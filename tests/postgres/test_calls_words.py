"""What a call says in Celery's words is true of its task: whether its result is kept, its limits, its own headers."""

from __future__ import annotations

from typing import Any

import pytest
from celery import signals

from celeriac import Celeriac, Task
from celeriac.run import shared
from tests.postgres.workflows import run_all
from tests.processes import Rows


@pytest.fixture(params=[False, True], ids=["direct", "traced"])
def traced(request: pytest.FixtureRequest) -> Any:
    """Both ways to run a handler."""
    heard = signals.task_prerun.connect(lambda **_: None, weak=False) if request.param else None
    yield
    if heard is not None:
        signals.task_prerun.disconnect(heard)


@pytest.fixture
def says(app: Celeriac, traced: None) -> Task[..., Any]:
    """Says of its request what it is asked for."""

    @app.task(role="says", bind=True, prompt=False, chunk=9, shared=False, time_limit=60, soft_time_limit=45)
    def says(self: Any, *names: str, again: bool = False) -> list[Any]:
        if again and not self.request.retries:
            raise self.retry(countdown=0)
        return [getattr(self.request, name, None) for name in names]

    app.register_roles()
    return says


# -- ignore_result -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
def test_a_call_says_whether_its_result_is_kept(says: Task[..., Any], rows: Rows, again: bool) -> None:
    ignored = says.apply_async(("retries",), {"again": again}, ignore_result=True)
    kept = says.apply_async(("retries",), {"again": again})
    run_all(says.app)
    assert rows("SELECT task_id, status, result FROM worker_tasks ORDER BY id") == [
        (ignored.id, "completed", None), (kept.id, "completed", [int(again)]),
    ]  # fmt: skip
    assert (ignored.ignored, ignored.get(), kept.ignored, kept.get(timeout=5)) == (True, None, False, [int(again)])


def test_a_call_of_a_task_that_ignores_results_may_want_its_own(app: Celeriac, traced: None) -> None:
    @app.task(role="quiet", ignore_result=True, prompt=False, chunk=9, shared=False)
    def quiet() -> int:
        return 7

    app.register_roles()
    usual, wanted, by_name = quiet.delay(), quiet.apply_async(ignore_result=False), app.send_task("quiet")
    run_all(app)
    assert (usual.ignored, wanted.ignored) == (True, False)
    assert wanted.get(timeout=5) == 7
    assert [app.AsyncResult(result.id).result for result in (usual, by_name)] == [None, None]


# -- time limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "told", "left", "grace"),
    [
        ({}, [60, 45], 45, 15),
        ({"time_limit": 30, "soft_time_limit": 20}, [30, 20], 20, 10),
        ({"time_limit": 90, "soft_time_limit": 70}, [90, 70], 70, 20),
        ({"time_limit": 30}, [30, None], 30, 0),
        ({"soft_time_limit": 20}, [60, 20], 20, 40),
        ({"timeout": 20}, [60, 20], 20, 40),
    ],
)  # fmt: skip
def test_a_call_says_both_its_time_limits(
    says: Task[..., Any], limits: dict[str, Any], told: list[Any], left: float, grace: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    seen: list[tuple[float, float]] = []
    monkeypatch.setattr(
        "celeriac.run.ticket.TicketRun._tell_limit",
        lambda _, run: seen.append((run.left, run.grace(5))),
    )
    result = says.apply_async(("time_limit", "soft_time_limit", "timelimit"), **limits)
    run_all(says.app)
    assert result.get(timeout=5) == [*told, told]
    assert seen == [(pytest.approx(left, abs=2), grace)]


def test_a_soft_limit_above_the_hard_one_is_refused_as_celery_does(app: Celeriac, rows: Rows) -> None:
    @app.task(role="odd", prompt=False, shared=False, time_limit=1, soft_time_limit=2)
    def odd() -> None: ...

    with pytest.raises(ValueError, match="soft_time_limit must be less than or equal to time_limit"):
        odd.delay()
    assert rows("SELECT FROM worker_tasks") == []


# -- headers -----------------------------------------------------------------------------------------------------------


def test_a_calls_own_headers_are_its_requests(says: Task[..., Any]) -> None:
    own = {"x-tenant": "acme", "traceparent": "00-1"}
    result = says.apply_async(("headers", "traceparent"), {"again": True}, headers=own)
    none = says.apply_async(("headers",), priority=3)
    run_all(says.app)
    assert result.get(timeout=5) == [own, "00-1"]
    assert none.get(timeout=5) == [None]


def test_headers_that_a_signals_receiver_adds_are_its_requests(says: Task[..., Any]) -> None:
    """As OpenTelemetry and its like do."""

    def add(headers: dict[str, Any], **_: Any) -> None:
        headers["traceparent"] = "00-2"

    signals.before_task_publish.connect(add)
    try:
        result = says.delay("headers", "traceparent")
    finally:
        signals.before_task_publish.disconnect(add)
    run_all(says.app)
    assert result.get(timeout=5) == [{"traceparent": "00-2"}, "00-2"]


def test_headers_cannot_say_what_the_row_says(says: Task[..., Any]) -> None:
    own = {"hostname": "me", "delivery_info": "mine", "run": "7", "priorities": "low"}
    result = says.apply_async(("run", "priorities", "hostname", "delivery_info"), headers=own)
    run_all(says.app)
    run, priorities, hostname, delivery = result.get(timeout=5)
    assert (run, priorities) == ("7", "low"), "are the call's own"
    assert hostname != "me"
    assert delivery["routing_key"] == "says"


# -- the request itself ------------------------------------------------------------------------------------------------


def test_a_request_says_of_its_message_what_celerys_says(says: Task[..., Any]) -> None:
    names = ("hostname", "origin", "reply_to", "correlation_id", "delivery_info", "properties")
    result = says.apply_async(names, priority=4)
    run_all(says.app)
    hostname, origin, reply_to, correlation_id, delivered, properties = result.get(timeout=5)
    assert hostname == (shared.node() or shared.worker_id())
    assert (origin, reply_to, correlation_id) == (says.app.process_name, None, result.id)
    assert delivered == {"exchange": "", "routing_key": "says", "priority": 4, "redelivered": False}
    assert properties == {
        "correlation_id": result.id, "reply_to": None, "delivery_mode": 2, "priority": 4, "delivery_info": delivered,
    }  # fmt: skip


def test_a_call_names_the_root_and_the_parent_of_its_task(says: Task[..., Any]) -> None:
    """Each by itself, as tracers and senders of other code bases do."""
    asked = ("root_id", "parent_id")
    told = [says.apply_async(asked, **said) for said in ({"root_id": "r"}, {"parent_id": "p"}, {}, {"root_id": "r"})]
    run_all(says.app)
    assert [one.get(timeout=5) for one in told] == [["r", None], [told[1].id, "p"], [told[2].id, None], ["r", None]]
