"""Roles with a rate are dispatched as their tokens come, between the lifeline's looks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from celeriac import Celeriac
from celeriac.operate import policies
from celeriac.run import shared
from celeriac.store.connections import Database
from celeriac.worker.refills import SELDOM, Refills
from tests.processes import Rows


@pytest.fixture
def published(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many tasks each pass gave; limits are watched, as in a worker."""
    given: list[int] = []
    monkeypatch.setattr(
        type(app.publisher), "publish", lambda _, tickets: given.extend(len(ticket.ids) for ticket in tickets) or True
    )
    shared.note_limits(1)
    yield given
    shared.note_limits(0)


def declare(app: Celeriac, **options: Any) -> tuple[Any, Refills]:
    @app.task(role="call", shared=False, chunk=100, **options)
    def call(n: int) -> None: ...

    app.register_roles()
    return call, Refills(app, lambda: [call.role], threading.Event())


def test_a_role_is_dispatched_as_its_next_token_comes(app: Celeriac, rows: Rows, published: list[int]) -> None:
    call, refills = declare(app, rate_limit="2/h")
    assert refills.look() == SELDOM, "nothing is ready"
    call.bulk([(n,) for n in range(5)])
    assert (refills.look(), published) == (1800, [2])
    assert refills.look() == pytest.approx(1800, abs=60), "both tokens are for what has not begun"
    rows("UPDATE celeriac.tickets SET worker_id = 'x', worker_pid = 1, started_at = now(), heartbeat_at = now()")
    rows("UPDATE celeriac.role_limits SET tokens = 0.5, taken_at = clock_timestamp()")
    assert refills.look() == pytest.approx(900, abs=60)
    rows("UPDATE celeriac.role_limits SET tokens = 1, taken_at = clock_timestamp()")
    assert (refills.look(), published) == (1800, [2, 1])
    assert refills.attempt() == SELDOM


def test_a_pass_gives_out_a_tenth_of_a_large_bucket_at_least(app: Celeriac, rows: Rows, published: list[int]) -> None:
    call, refills = declare(app, rate_limit="100/h")
    call.bulk([(n,) for n in range(5)])
    rows("UPDATE celeriac.role_limits SET tokens = 4, taken_at = clock_timestamp()")
    assert refills.look() == pytest.approx(6 * 36, abs=30)
    assert published == []


def test_a_role_that_gives_nothing_is_tried_ever_less_often(
    app: Celeriac, database: Database, published: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    call, refills = declare(app, rate_limit="2/h")
    call.bulk([(n,) for n in range(5)])
    with database.transaction() as connection:
        policies.pause_role(connection, "call", by="op")
    assert refills.look() == 2 * 1800
    assert refills.look() == pytest.approx(2 * 1800, abs=60)
    refills.not_before.clear()
    assert (refills.look(), published) == (4 * 1800, [])


@pytest.mark.parametrize("options", [{}, {"rate_limit": "2/h", "prompt": False}])
def test_nothing_is_asked_where_no_role_has_a_rate_to_keep_up_with(
    app: Celeriac, published: list[int], options: Any
) -> None:
    _, refills = declare(app, **options)
    refills.look()
    said: list[str] = []
    event.listen(app.database._verbs, "before_cursor_execute", lambda *given: said.append(given[2]))
    assert (refills.look(), said) == (SELDOM, [])
