"""Each private, undocumented or replaced part of Celery and its like is listed, and is what the engine takes it for."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from celeriac.seam.private import RELIED_ON
from tests import private
from tests.processes import ROOT


def test_each_use_is_listed_and_each_listed_is_used() -> None:
    """A use that is not is listed in `celeriac/seam/private.py`, with what breaks without it."""
    assert private.found().keys() == RELIED_ON.keys()


def test_celery_is_imported_by_seam_and_worker_and_by_whom_the_contract_names() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (said,) = (one for one in contracts if one["name"].startswith("Celery is met in seam and worker"))
    parts = {".".join(name.split(".")[:2]) for name in private.MODULES if name != "celeriac"}
    assert {*said["source_modules"]} == parts - {"celeriac.seam", "celeriac.worker"}
    assert {*said["forbidden_modules"]} == private.FOREIGN - {"concurrent", "gevent"}


@pytest.mark.parametrize("name", RELIED_ON)
def test_it_is_what_the_engine_takes_it_for(name: str) -> None:
    assert private.fits(name, RELIED_ON[name].shape), private.shape(name)
    assert RELIED_ON[name].breaks


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from celery.app.trace import trace_task", "celery.app.trace.trace_task"),
        ("from celery import _state\n_state._on_app_finalizers = 1", "celery._state._on_app_finalizers"),
        ("from celery.app import trace\ntrace.build_tracer", "celery.app.trace.build_tracer"),
        ("from celery import Celery\nCelery._conf", "celery.Celery._conf"),
        ("from kombu import Producer\nProducer.publish = 1", "kombu.Producer.publish"),
        ("def f(channel): channel._in_poll", "._in_poll"),
        ("def f(self): self._in_poll", "._in_poll"),
        ("getattr(channel, '_in_poll', None)", "._in_poll"),
        ("from celery import Celery\nCelery('shop').send_task", None),
        ("from celery.result import AsyncResult\nAsyncResult.get", None),
        ("def f(self): self._task_from_fun", None),
    ],
)
def test_the_search_finds_what_is_private(source: str, name: str | None) -> None:
    tree = ast.parse(source)
    assert {use for _, use in private.of_source(tree)} == ({name} if name else set())


def test_what_is_gone_or_has_changed_is_told_with_what_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert private.changed() == []
    monkeypatch.setattr("celery.app.trace.build_tracer", lambda name: name)
    monkeypatch.delattr("kombu.transport.redis.Channel._brpop_read")
    gone, other = private.changed()
    assert re.fullmatch(r"celery.app.trace.build_tracer: \(name\), not .*no task with signals.*run\.execute:.*", gone)
    assert re.fullmatch(r"kombu.transport.redis.Channel._brpop_read: .*, not \(self.*ends a worker.*", other)
