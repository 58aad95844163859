"""Looks that a worker asks its own processes for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kombu.asynchronous import Hub

from celeriac.worker.alone import Alone, AloneStep


@pytest.fixture
def asked() -> list[Any]:
    return []


@pytest.fixture
def alone(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> Alone:
    """Two processes, which begin nothing that they are asked for."""
    role = SimpleNamespace(name="sync", lane="sync")
    app = SimpleNamespace(
        publisher=SimpleNamespace(is_open=False), amqp=SimpleNamespace(queues=SimpleNamespace(consume_from={})),
        roles=SimpleNamespace(of_queues=lambda _: [role]), settings=SimpleNamespace(poll_interval=0.0),
    )  # fmt: skip
    alone = Alone(SimpleNamespace(app=app, pool=SimpleNamespace(num_processes=1)))

    def ask(role: str) -> None:
        look: Any = type("Look", (), {"role": role})()
        alone.under_way.add(look)
        asked.append(look)

    monkeypatch.setattr(Alone, "_ask", lambda _self, role: ask(role))
    return alone


def test_a_look_that_the_pool_throws_away_keeps_no_other_from_being_asked_for(alone: Alone, asked: list[Any]) -> None:
    alone.look()
    alone.look()
    assert len(asked) == 1
    AloneStep(SimpleNamespace()).stop(SimpleNamespace(alone=alone))
    alone.look()
    assert len(asked) == 2
    alone.over(asked[0], ran=0)  # one that ran all the same
    alone.look()
    assert len(asked) == 2


def test_a_wait_leaves_no_timer_of_the_pools_behind(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands would go on for ever."""
    hub = Hub()
    alone.consumer.hub = hub
    alone.consumer.controller = SimpleNamespace(
        register_with_event_loop=lambda hub: hub.call_repeatedly(5.0, lambda: None)
    )
    kept = hub.call_later(3600.0, lambda: None)
    monkeypatch.setattr(Alone, "is_needed", lambda _: False)
    for _ in range(3):
        alone.work_for(0.01)
    assert [entry for _, _, entry in hub.timer.queue if not entry.canceled] == [kept]
    hub.close()
