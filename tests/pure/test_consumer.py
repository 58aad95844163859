"""A worker's consumer on a network that breaks connections."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.consumer import Consumer as StockConsumer
from kombu.exceptions import OperationalError
from kombu.utils.eventio import poll

from celeriac.run import shared
from celeriac.run.places import places
from celeriac.worker import consumer
from celeriac.worker.consumer import Consumer


def polls_what_is_closed(*_: Any) -> None:
    poller = poll()
    poller.close()
    poller.register(0, 1)


def fails_by_itself(*_: Any) -> None:
    raise ValueError("of ours")


@pytest.mark.parametrize(("step", "becomes"), [(polls_what_is_closed, OperationalError), (fails_by_itself, ValueError)])
def test_what_a_broken_connection_leaves_to_kombu_ends_no_worker(
    monkeypatch: pytest.MonkeyPatch, step: Any, becomes: type[Exception]
) -> None:
    """As in Celery's mingle, whose reply a reset took: `OperationalError` is what the consumer connects again after."""
    monkeypatch.setattr(StockConsumer.Blueprint, "start", step)
    with pytest.raises(becomes):
        Consumer.Blueprint(steps=[]).start(SimpleNamespace(connection_errors=(ConnectionError,)))


def test_between_connections_that_break_work_goes_on_for_the_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[float] = []
    ours: Any = Consumer.__new__(Consumer)
    ours.steps = []

    def work_for(seconds: float) -> None:
        assert (places.alone, shared.alone()) == (True, True)
        worked.append(seconds)

    ours.alone = SimpleNamespace(work_for=work_for)
    monkeypatch.setattr(StockConsumer, "connect", lambda _: None)
    monkeypatch.setattr(StockConsumer, "on_connection_error_after_connected", lambda *_: None)
    for _ in range(5):
        ours.connect()
        ours.on_connection_error_after_connected(OSError())
    assert (worked, places.alone, shared.alone()) == ([1.0, 2.0, 4.0, 5.0], False, False)
    ours.broken = 5_000  # hours of it
    ours.connect()
    assert worked.pop() == 5.0
    monkeypatch.setattr(consumer, "STEADY", 0.0)
    ours.on_connection_error_after_connected(OSError())
    ours.connect()
    assert len(worked) == 4, "one that has lasted is made again at once"
