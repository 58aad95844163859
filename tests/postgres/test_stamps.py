"""Stamps stand in the rows of all that a stamped workflow publishes, and its handlers see them in `self.request`."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Task, chain, chord, group
from celery.canvas import StampingVisitor

from celeriac import Celeriac
from tests.postgres.workflows import run_all
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")

Seen = list[tuple[str, dict[str, Any], list[str]]]


@pytest.fixture
def seen() -> Seen:
    """Of each run: its role, its stamps, and the names of these."""
    return []


@pytest.fixture
def tasks(app: Celeriac, seen: Seen) -> dict[str, Any]:
    usual: dict[str, Any] = {"bind": True, "shared": False, "prompt": False, "chunk": 500}

    def see(task: Any) -> None:
        seen.append((task.name, task.request.stamps, task.request.stamped_headers))

    @app.task(role="first", **usual)
    def first(self: Any, *_: Any) -> int:
        see(self)
        return 1

    @app.task(role="body", **usual)
    def body(self: Any, *_: Any) -> int:
        see(self)
        return 2

    @app.task(role="callback", **usual)
    def callback(self: Any, *_: Any) -> None:
        see(self)

    @app.task(role="fail", **usual)
    def fail(self: Any, *_: Any) -> None:
        see(self)
        raise ValueError("on purpose")

    @app.task(role="retries", max_retries=1, **usual)
    def retries(self: Any) -> None:
        see(self)
        if not self.request.retries:
            raise self.retry(countdown=0)

    class Stamped(Task):  # type: ignore[misc]
        def on_replace(self, sig: Any) -> Any:
            sig.stamp(replaced="yes")
            return super().on_replace(sig)

    @app.task(role="swap", base=Stamped, **usual)
    def swap(self: Any, *_: Any) -> Any:
        see(self)
        return self.replace(first.s())

    app.register_roles()
    return {"first": first, "body": body, "callback": callback, "fail": fail, "retries": retries, "swap": swap}


class OfTenant(StampingVisitor):  # type: ignore[misc]
    """Celery stamps the body of a chord only for a visitor."""

    def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:
        return {"tenant": "acme"}


def stamped(name: str, **stamps: Any) -> tuple[str, dict[str, Any], list[str]]:
    return name, stamps, [*stamps]


def test_every_part_of_a_workflow_has_the_stamps_of_the_whole(app: Celeriac, tasks: Any, seen: Seen) -> None:
    first, body = tasks["first"], tasks["body"]
    made = chain(first.s(), chord([first.s(), chain(first.s(), first.s())], body.s()), body.s())
    made.stamp(OfTenant())
    made.apply_async()
    run_all(app)
    assert seen == [stamped("first", tenant="acme")] * 4 + [stamped("body", tenant="acme")] * 2


def test_callbacks_and_errbacks_have_stamps(app: Celeriac, tasks: Any, seen: Seen) -> None:
    made = group(
        tasks["first"].s().set(link=[tasks["callback"].s()]), tasks["fail"].s().on_error(tasks["callback"].s())
    )
    made.stamp(tenant="acme")
    made.apply_async()
    run_all(app)
    assert sorted(seen) == [stamped(name, tenant="acme") for name in ("callback", "callback", "fail", "first")]


def test_a_visitor_stamps_each_part_with_its_own(app: Celeriac, tasks: Any, seen: Seen) -> None:
    class Numbered(StampingVisitor):
        n = 0

        def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:
            self.n += 1
            return {"n": self.n, "stamped_headers": ["n"]}

    made = chain(tasks["first"].s(), tasks["first"].s(), tasks["body"].s())
    made.stamp(Numbered())
    made.apply_async()
    run_all(app)
    assert [stamps["n"] for _, stamps, _ in seen] == [1, 2, 3]


def test_the_next_attempt_has_the_stamps_of_the_first(app: Celeriac, tasks: Any, seen: Seen, rows: Rows) -> None:
    made = tasks["retries"].s()
    made.stamp(tenant="acme")
    made.apply_async()
    run_all(app, lambda: rows("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'"))
    assert seen == [stamped("retries", tenant="acme")] * 2


def test_what_comes_in_the_place_of_a_task_has_the_stamps_of_on_replace(app: Celeriac, tasks: Any, seen: Seen) -> None:
    made = chain(tasks["swap"].s(), tasks["body"].s())
    made.stamp(tenant="acme")
    result = made.apply_async()
    run_all(app)
    assert result.get(timeout=1) == 2
    assert [name for name, _, _ in seen] == ["swap", "first", "body"]
    assert seen[1] == stamped("first", replaced="yes")
    assert seen[2][1] == {"tenant": "acme", "replaced": "yes"}


def test_stamps_stand_in_the_rows(app: Celeriac, tasks: Any, rows: Rows) -> None:
    made = chord([tasks["first"].s()], tasks["body"].s())
    made.stamp(OfTenant())
    made.apply_async()
    assert rows("SELECT headers -> 'canvas' -> 'stamps' FROM worker_tasks") == [({"tenant": "acme"},)] * 2
