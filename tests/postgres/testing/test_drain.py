"""`celeriac.testing`: to drain is to run what is due, to its end, and to raise what a handler raised."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord

from celeriac import Celeriac, testing
from celeriac.errors import CeleriacError
from tests.postgres.testing.test_testing import STATES
from tests.processes import Rows


def test_drain_runs_what_is_due_and_what_comes_of_it(shop: dict[str, Any]) -> None:
    shop["parent"].delay(1)
    shop["sync"].using(countdown=60).delay(2)
    assert testing.drain() == {"completed": 2}
    assert shop["ran"] == [("sync", 1)]
    assert testing.drain(with_scheduled=True) == {"completed": 1}
    testing.refute_enqueued("sync")


def test_drain_runs_one_role(shop: dict[str, Any]) -> None:
    shop["parent"].delay(1)
    assert testing.drain("parent") == {"completed": 1}
    assert testing.drain(shop["sync"]) == {"completed": 1}


def test_drain_runs_all_tasks_of_one_lock_one_after_the_other(shop: dict[str, Any]) -> None:
    for _ in range(3):
        shop["sync"].delay(1)
    assert testing.drain() == {"completed": 3}


def test_drain_with_retries_goes_on_to_the_end(shop: dict[str, Any]) -> None:
    shop["flaky"].delay(2)
    assert testing.drain() == {"retried": 1}
    assert testing.drain(with_scheduled=True) == {}
    assert testing.drain(with_retries=True) == {"retried": 1, "completed": 1}


def test_drain_raises_what_a_handler_raised(shop: dict[str, Any], rows: Rows) -> None:
    shop["broken"].delay()
    with pytest.raises(ValueError, match="on purpose"):
        testing.drain()
    shop["broken"].delay()
    assert testing.drain(raising=False) == {"failed": 1}
    assert rows(STATES) == [("failed", 2)]


def test_what_an_error_leaves_undone_waits(app: Celeriac, shop: dict[str, Any], rows: Rows) -> None:
    for _ in range(3):
        shop["broken"].delay()
    with testing.mode("worker"), pytest.raises(ValueError, match="on purpose"):
        testing.drain()
    assert rows(STATES) == [("failed", 1), ("pending", 2)]
    with pytest.raises(ValueError, match="on purpose"):
        testing.drain()


def test_drain_does_not_go_on_for_ever(app: Celeriac) -> None:
    @app.task(role="echo")
    def echo() -> None:
        echo.delay()

    echo.delay()
    with pytest.raises(CeleriacError, match=r"drain: 11 runs, and more is due \(echo 11 times\): do tasks enqueue"):
        testing.drain(limit=10)


def test_drain_may_end_beyond_its_limit(shop: dict[str, Any]) -> None:
    """A ticket has many tasks: that they are more says nothing of what comes after them."""
    for n in range(4):
        shop["add"].delay(n, n)
    assert testing.drain(limit=3) == {"completed": 4}


def test_drain_takes_workflows_to_their_end(shop: dict[str, Any]) -> None:
    add, total = shop["add"], shop["total"]
    body = chord([chain(add.s(1, 1), add.s(10)), add.s(2, 2)], total.s())()
    assert testing.drain() == {"completed": 4}
    assert body.get() == 16


def test_drain_rescues_what_a_silent_worker_holds(shop: dict[str, Any]) -> None:
    testing.task_row(shop["sync"], (4,), state="running", worker_id="gone")
    assert testing.drain() == {}
    testing.advance(601)
    assert testing.drain(with_retries=True) == {"completed": 1}


def test_a_pass_asked_for_by_hand_is_drained(app: Celeriac, shop: dict[str, Any]) -> None:
    shop["sync"].delay(1)
    assert app.dispatch("sync") == 1
    testing.assert_enqueued("sync")
    assert testing.drain() == {"completed": 1}


def test_a_drain_of_many_tasks_takes_few_passes(app: Celeriac, rows: Rows) -> None:
    """No worker is there whose slots would count: eight tasks a pass cost forty times as much."""

    @app.task(role="nothing", shared=False)
    def nothing(n: int) -> None: ...

    nothing.bulk([(n,) for n in range(400)])
    assert testing.drain(app=app) == {"completed": 400}
    assert rows.one("SELECT count(*) FROM passes") < 20
