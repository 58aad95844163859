"""What a task message says of its workflow becomes a barrier and a place; a member never carries its chord's body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.canvas import Signature

from celeriac.canvas.parts import Part, barrier_of, part_of, stored_body


class Published(list[tuple[Mapping[str, Any], Mapping[str, Any]]]):
    """Headers and embedded parts of the messages that a canvas sends."""


@pytest.fixture
def app() -> Celery:
    app = Celery("plain", set_as_current=False, broker="memory://", backend="cache+memory://")

    @app.task(name="add", shared=False)
    def add(*_: Any) -> None: ...

    return app


@pytest.fixture
def published(app: Celery, monkeypatch: pytest.MonkeyPatch) -> Published:
    found = Published()
    monkeypatch.setattr(app.backend, "apply_chord", lambda *_, **__: None)
    app.amqp.__dict__["send_task_message"] = lambda _, __, message, **___: found.append(
        (message.headers, message.body[2])
    )
    return found


def add(app: Celery) -> Signature:
    return app.tasks["add"].s(1)


def parts(published: Published) -> list[Part | None]:
    return [part_of(*message) for message in published]


def test_a_plain_call_is_no_part(app: Celery, published: Published) -> None:
    add(app).apply_async()
    assert parts(published) == [None]


def test_members_of_a_group_hold_nothing_back(app: Celery, published: Published) -> None:
    group(add(app), add(app)).apply_async()
    assert [part and (part.barrier, part.place, part.request["group_index"]) for part in parts(published)] == [
        (None, None, 0), (None, None, 1)
    ]  # fmt: skip


def test_members_of_a_chord_have_its_barrier_and_their_places(app: Celery, published: Published) -> None:
    result = chord([add(app), add(app)], add(app)).apply_async()
    assert [part and (part.barrier, part.place) for part in parts(published)] == [
        (barrier_of(result.parent.id), 0), (barrier_of(result.parent.id), 1)
    ]  # fmt: skip


def test_what_is_no_last_link_holds_back_and_delivers_nothing(app: Celery, published: Published) -> None:
    result = chord([chain(add(app), add(app)), add(app)], add(app)).apply_async()
    assert [part and (part.barrier, part.place) for part in parts(published)] == [
        (barrier_of(result.parent.id), None), (barrier_of(result.parent.id), 1)
    ]  # fmt: skip


@pytest.mark.parametrize("member", ["task", "chain", "chord at the end of a chain"])
def test_a_member_names_the_body_and_does_not_carry_it(app: Celery, published: Published, member: str) -> None:
    body = app.tasks["add"].s("x" * 10_000)
    made = {
        "task": add(app),
        "chain": chain(add(app), add(app)),
        "chord at the end of a chain": chain(add(app), group(add(app), add(app)), add(app)),
    }[member]
    chord([made, add(app)], body).apply_async()
    first = parts(published)[0]
    assert first is not None
    assert first.body is not None
    assert len(json.dumps(first.request)) < 5_000


def test_a_body_that_is_a_row_already_is_not_brought_again(app: Celery, published: Published) -> None:
    chord([add(app)], add(app)).apply_async()
    (first,) = parts(published)
    assert first is not None
    again = part_of(
        {"group": published[0][0]["group"], "group_index": 3}, {"chord": stored_body(**first.request["chord"])}
    )
    assert again is not None
    assert (again.barrier, again.place, again.body) == (first.barrier, 3, None)


def test_a_group_may_have_any_name(app: Celery) -> None:
    assert barrier_of("my group") == barrier_of("my group") != barrier_of("another")
