"""The store workers' variables decide whose work a worker takes and how much of it at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import _state
from celery.concurrency.base import BasePool
from celery.concurrency.prefork import TaskPool

from celeriac import Celeriac, Settings
from celeriac.cli.check import problems
from celeriac.errors import ConfigurationError
from celeriac.worker.controller import CannotStart, queues_of
from celeriac.worker.lifeline import Lifeline
from celeriac.worker.pools import kind_of, prepare

# Celery warns whoever starts a worker as root, as containers do.
pytestmark = pytest.mark.filterwarnings("ignore::celery.platforms.SecurityWarning")

BROWSER = {"memory_per_task": 400}


@pytest.fixture(autouse=True)
def waits_for_results() -> Iterator[None]:
    """Whoever starts a worker may not wait for results from then on."""
    yield
    _state._set_task_join_will_block(False)


def handler() -> None: ...


def shop(**environ: str) -> Celeriac:
    given = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1", **environ}
    app = Celeriac("shop", settings=Settings.from_environ(given), set_as_current=False)
    for options in ({"role": "resync"}, {"role": "discover"}, {"role": "thumbnail", **BROWSER}):
        app.task(**options)(handler)
    return app


def started(app: Celeriac, **given: Any) -> Any:
    return app.Worker(hostname="w@h", pool_cls="solo", **given)


def consumed(app: Celeriac, **given: Any) -> list[str]:
    started(app, **given)
    return sorted(app.amqp.queues.consume_from)


def test_a_worker_takes_the_work_of_its_role() -> None:
    assert consumed(shop(WORKER_ROLE="resync")) == ["resync"]
    assert consumed(shop(WORKER_ROLE=" discover, resync,")) == ["discover", "resync"]


def test_without_a_role_it_takes_all_and_the_command_line_wins() -> None:
    assert {"resync", "discover", "thumbnail"} <= set(consumed(shop()))
    assert consumed(shop(WORKER_ROLE="resync"), queues=["thumbnail"]) == ["thumbnail"]


def test_an_unknown_role_is_told() -> None:
    app = shop(WORKER_ROLE="resink")
    with pytest.raises(ConfigurationError, match=r"WORKER_ROLE='resink': no role 'resink'; there are: .*resync"):
        queues_of(app.roles, app.settings.worker_role)
    assert any("WORKER_ROLE='resink'" in problem for problem in problems(app))
    app.publisher.close()
    app.database.dispose()


def test_three_tasks_at_once_unless_said_otherwise() -> None:
    assert started(shop(WORKER_ROLE="resync")).concurrency == 3
    assert started(shop(WORKER_ROLE="resync", MAX_CONCURRENT_TASKS="5")).concurrency == 5
    assert started(shop(WORKER_ROLE="resync", MAX_CONCURRENT_TASKS="5"), concurrency=2).concurrency == 2


@pytest.mark.parametrize(("limit", "fit"), [(2000, 3), (2560, 4), (900, 1)])
def test_a_role_that_takes_much_memory_caps_its_worker(limit: int, fit: int) -> None:
    given = {"CELERIAC_MEMORY_LIMIT_MB": str(limit), "MAX_CONCURRENT_TASKS": "8"}
    assert started(shop(WORKER_ROLE="thumbnail", **given)).concurrency == fit
    assert started(shop(WORKER_ROLE="resync", **given)).concurrency == 8
    autoscaled = started(shop(WORKER_ROLE="resync,thumbnail", **given), autoscale=(10, 2))
    assert (autoscaled.max_concurrency, autoscaled.min_concurrency) == (fit, min(fit, 2))


def test_enough_memory_caps_nothing() -> None:
    app = shop(WORKER_ROLE="thumbnail", CELERIAC_MEMORY_LIMIT_MB="1000000")
    assert started(app, concurrency=2).concurrency == 2


@pytest.mark.parametrize("module", ["celery.concurrency.eventlet", "somebodys"])
def test_a_pool_in_which_nothing_can_be_interrupted_is_refused(module: str) -> None:
    pool = type("TaskPool", (BasePool,), {"__module__": module})
    with pytest.raises(ConfigurationError, match=f"-P {module.rsplit('.', maxsplit=1)[-1]}.*use prefork"):
        kind_of(pool)


def test_a_pool_that_is_made_from_one_of_celerys_is_as_that() -> None:
    assert kind_of(type("Mine", (TaskPool,), {})) == "prefork"


@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_where_tasks_share_a_process_nothing_is_scaled(pool: str) -> None:
    with pytest.raises(ConfigurationError, match="give -c in place of --autoscale"):
        shop(WORKER_ROLE="resync").Worker(hostname="w@h", pool_cls=pool, autoscale=(8, 2))


def test_gevent_has_to_be_there_from_the_start() -> None:
    with pytest.raises(ConfigurationError, match="say `celery worker -P gevent`"):
        prepare("gevent")


def test_a_worker_whose_pool_has_stopped_has_its_own_process_left() -> None:
    """A heartbeat may come between the end of the pool and the end of the worker."""
    lifeline = object.__new__(Lifeline)
    lifeline.worker = SimpleNamespace(pool=TaskPool(1))
    assert lifeline.processes() == [os.getpid()]


def test_purge_is_refused_by_its_name() -> None:
    with pytest.raises(
        CannotStart, match=r"^--purge: queues in Redis hold tickets, .* cancel tasks with `celeriac tasks cancel"
    ):
        started(shop(), purge=True)
