"""`task_received` is sent of each task, in the process that is about to run it, with what Celery's requests have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import chord, group, signals
from celery.canvas import StampingVisitor
from celery.worker.request import Request

from celeriac import Celeriac
from tests.postgres.workflows import declare, run_all


class Stamps(StampingVisitor):
    def on_signature(self, sig: Any, **_: Any) -> dict[str, Any]:
        return {"monitoring": "42"}


@pytest.fixture
def received() -> Iterator[list[Request]]:
    found: list[Request] = []

    def receive(sender: Any, request: Request, **_: Any) -> None:
        assert sender is request.task
        found.append(request)

    signals.task_received.connect(receive)
    yield found
    signals.task_received.disconnect(receive)


def test_each_task_is_received_before_it_runs(app: Celeriac, received: list[Request]) -> None:
    tasks = declare(app)
    first, second = tasks["add"].delay(1, 2), tasks["add"].apply_async((3, 4), priority=7, shadow="sum")
    tasks["add"].apply_async((5, 6), expires=-1)
    seen: list[int] = []
    signals.task_prerun.connect(seen_before := lambda **_: seen.append(len(received)))
    run_all(app)
    signals.task_prerun.disconnect(seen_before)
    assert seen[0] == 2, "at once all that is about to run, and nothing that came too late"
    assert {request.id for request in received} == {first.id, second.id}
    one = next(request for request in received if request.id == second.id)
    assert isinstance(one, Request)
    assert (one.task_name, one.type, list(one.args), one.kwargs) == ("sum", "add", [], {"x": 3, "y": 4})
    assert (one.root_id, one.parent_id, one.eta, one.expires, one.app) == (second.id, None, None, None, app)
    assert (one.correlation_id, one.reply_to, one.request_dict["retries"]) == (second.id, "", 0)
    assert one.delivery_info == {"exchange": "", "routing_key": "add", "priority": 7, "redelivered": False}
    assert one.info()["id"] == one.id
    assert (one.replaced_task_nesting, one.stamps, one.stamped_headers) == (0, {}, [])


def test_a_request_has_its_stamps_links_and_errbacks(app: Celeriac, received: list[Request]) -> None:
    tasks = declare(app)
    call = tasks["add"].si(1, 2)
    call.link(tasks["add"].si(3, 4))
    call.link_error(tasks["told"].s())
    call.stamp(visitor=Stamps())
    call.apply_async()
    run_all(app)
    first, link = received
    assert (first.stamped_headers, first.stamps) == (["monitoring"], {"monitoring": "42"})
    assert [sig["task"] for sig in first._Request__payload[2]["callbacks"]] == ["add"]  # type: ignore[attr-defined]
    assert [sig["options"]["monitoring"] for sig in first.errbacks] == ["42"]
    assert link.parent_id == first.id


def test_the_parts_of_a_chord_are_received(app: Celeriac, received: list[Request]) -> None:
    tasks = declare(app)
    done = chord(group(tasks["add"].s(n, n) for n in range(3)), tasks["total"].s()).delay()
    run_all(app)
    assert done.get(timeout=5) == 6
    assert [request.type for request in received] == ["add", "add", "add", "total"]
    assert {request.group for request in received[:3]} != {None}
    assert [request.request_dict["chord"] is None for request in received] == [False, False, False, True]


def test_each_attempt_is_received(app: Celeriac, received: list[Request]) -> None:
    @app.task(role="again", bind=True, prompt=False, shared=False)
    def again(self: Any) -> None:
        if not self.request.retries:
            raise self.retry(countdown=0)

    app.register_roles()
    again.delay()
    run_all(app)
    assert [request.request_dict["retries"] for request in received] == [0, 1]
