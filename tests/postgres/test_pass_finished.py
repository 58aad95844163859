"""Who connects to `pass_finished` hears what a scheduled pass has published, and what was due."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from celeriac import Celeriac, signals
from celeriac.insights.tasks import counting
from celeriac.insights.tasks.counting import due
from celeriac.schedules import batcher
from celeriac.schedules.timetable import Timetable


@pytest.fixture
def left() -> Iterator[list[Any]]:
    """Which roles' tasks are counted."""
    counted: list[Any] = []

    def count(connection: Any, role: str) -> int:
        counted.append(role)
        return due(connection, role)

    with patch.object(counting, "due", count):
        yield counted


def test_only_the_roles_somebody_listens_to_are_counted(app: Celeriac, left: list[str]) -> None:
    for name in ("heard", "unheard"):
        app.task(role=name, prompt=False, shared=False)(work)
    app.register_roles()
    timetable = Timetable(app)
    timetable.install()
    heard: list[str] = []

    def hear(role: str, **_: Any) -> None:
        heard.append(role)

    signals.pass_finished.connect(hear, sender="heard")
    timetable.run_now("batcher unheard")
    timetable.run_now("batcher heard")
    signals.pass_finished.disconnect(hear, sender="heard")
    assert (heard, left) == (["heard"], ["heard"])


def work() -> None: ...


def test_a_scheduled_pass_says_what_it_did(app: Celeriac) -> None:
    @app.task(role="passed", prompt=False, batch_size=2, shared=False)
    def work(n: int) -> None: ...

    app.register_roles()
    app.schedules = [batcher("passed")]
    timetable = Timetable(app)
    timetable.install()
    work.bulk([(n,) for n in range(5)])
    work.apply_async((6,), countdown=3600)
    heard: list[dict[str, Any]] = []

    def hear(role: str, scheduled: int, pending: int, **_: Any) -> None:
        heard.append({"role": role, "scheduled": scheduled, "pending": pending})

    signals.pass_finished.connect(hear)
    for _ in range(2):
        timetable.run_now("batcher passed")
    signals.pass_finished.disconnect(hear)
    passed = {"role": "passed", "scheduled": 2}
    assert heard == [passed | {"pending": 5}, passed | {"pending": 3}]
