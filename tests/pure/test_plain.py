"""A direct call of a handler is taken only where nobody could tell it from one through Celery's tracer."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest
from celery import Task as CeleryTask
from celery import signals
from celery.app import trace
from celery.loaders.app import AppLoader

from celeriac import Celeriac, Settings
from celeriac.run.execute import SIGNALS, is_plain


class Watching(AppLoader):
    def on_process_cleanup(self) -> None:
        """Of an application's own."""


def task(**options: Any) -> Any:
    app = Celeriac("plain", settings=Settings(), set_as_current=False, **options)

    @app.task(name="plain", shared=False)
    def plain() -> None: ...

    app.finalize()
    return plain


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests' modules have connected."""
    for signal in SIGNALS:
        monkeypatch.setattr(signal, "receivers", [])


def test_an_ordinary_task_is_called_directly() -> None:
    assert is_plain(task())


def test_a_loader_that_looks_after_tasks_is_asked() -> None:
    assert not is_plain(task(loader=Watching))


def test_who_listens_to_a_signal_hears_it() -> None:
    def heard(**_: Any) -> None: ...

    signals.task_postrun.connect(heard)
    assert not is_plain(task())
    signals.task_postrun.disconnect(heard)


def test_a_tracer_in_the_place_of_celerys_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of Sentry and its like."""
    original = trace.build_tracer

    def another(*given: Any, **more: Any) -> Any:
        return original(*given, **more)

    monkeypatch.setattr(trace, "build_tracer", another)
    assert not is_plain(task())


def test_a_call_in_the_place_of_celerys_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of agents, which name their function as Celery's is."""
    original = CeleryTask.__call__

    @wraps(original)
    def another(*given: Any, **more: Any) -> Any:
        return original(*given, **more)

    monkeypatch.setattr(CeleryTask, "__call__", another)
    assert not is_plain(task())


def test_the_protection_that_a_worker_of_celerys_installs_is_no_call_of_anothers() -> None:
    trace._install_stack_protection()
    try:
        assert is_plain(task())
    finally:
        trace.reset_worker_optimizations()
