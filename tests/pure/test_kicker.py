"""Kicks: a task that comes by itself is sent at once and named; a burst makes few, and names none."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from celeriac.dispatch import kicks as kicks_module
from celeriac.dispatch.kicks import LONGEST_REST, REST, Kicker
from tests.processes import until


class Sent:
    """What was sent; a send can be held up."""

    def __init__(self) -> None:
        self.kicks: list[tuple[str, int | None]] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, role: str, lone: int | None) -> None:
        self.kicks.append((role, lone))
        assert self.go_on.wait(30)


def test_tasks_that_come_one_by_one_are_each_named() -> None:
    kicker = Kicker(sent := Sent())
    for row in range(5):
        kicker.kick("work", row)
        assert kicker.flush(30)
    assert sent.kicks == [("work", row) for row in range(5)]


def test_what_comes_while_one_is_sent_makes_one_more_that_names_none() -> None:
    kicker = Kicker(sent := Sent())
    sent.go_on.clear()
    kicker.kick("work", 1)
    until(lambda: sent.kicks, "the first")
    for row in range(2, 100):
        kicker.kick("work", row)
    sent.go_on.set()
    assert kicker.flush(30)
    assert sent.kicks == [("work", 1), ("work", None)]


def test_the_longer_a_burst_lasts_the_fewer_kicks_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) < 8:
            kicker.kick("work", len(rests))

    monkeypatch.setattr(kicks_module, "time", SimpleNamespace(sleep=sleep))
    kicker = Kicker(Sent())
    kicker.kick("work", 0)
    assert kicker.flush(30)
    assert rests == [REST, 2 * REST, 4 * REST, *[LONGEST_REST] * 5]
    kicker.kick("work", 8)
    assert kicker.flush(30)
    assert rests[8:] == [REST]


def test_a_kick_that_fails_does_not_end_the_thread() -> None:
    kicks: list[int | None] = []

    def send(_: str, lone: int | None) -> None:
        kicks.append(lone)
        raise ZeroDivisionError

    kicker = Kicker(send)
    for row in (1, 2):
        kicker.kick("work", row)
        assert kicker.flush(30)
    assert kicks == [1, 2]
