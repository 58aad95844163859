"""The journal of events outlasts a Redis that is away, and takes no more memory for it."""

from __future__ import annotations

import gc
import math
import os
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from celeriac import Celeriac, Settings
from celeriac.run.journal import MESSAGE, MOST, Journal


class Redis:
    def __init__(self) -> None:
        self.takes = True
        self.messages: list[list[int]] = []

    def publish(self, events: Sequence[dict[str, Any]]) -> bool:
        if self.takes:
            self.messages.append([event["n"] for event in events])
        return self.takes

    def told(self) -> list[int]:
        return [n for message in self.messages for n in message]


def written(journal: Journal, numbers: range) -> None:
    for n in numbers:
        journal.write({"n": n})


def test_events_go_in_order_and_in_bounded_messages() -> None:
    redis = Redis()
    journal = Journal(redis.publish)
    written(journal, range(MESSAGE + 7))
    journal.flush()
    journal.flush()
    assert redis.told() == [*range(MESSAGE + 7)]
    assert [len(message) for message in redis.messages] == [MESSAGE, 7]


def test_what_redis_does_not_take_waits_and_the_oldest_goes_first() -> None:
    redis = Redis()
    journal = Journal(redis.publish)
    redis.takes = False
    written(journal, range(10))
    journal.flush()
    written(journal, range(10, MOST + 4))
    redis.takes = True
    journal.flush()
    assert redis.told() == [*range(4, MOST + 4)]


def test_no_message_is_built_for_a_redis_that_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []
    monkeypatch.setattr("celeriac.run.process.message", lambda *given: built.append(given))
    app = Celeriac("silent", settings=Settings(redis_url="redis://nowhere.invalid/"), set_as_current=False)
    app.publisher._closed_until = math.inf
    app.journal.write({"n": 1})
    app.journal.flush()
    assert built == []


def test_a_forked_child_tells_nothing_of_its_parents() -> None:
    redis = Redis()
    journal = Journal(redis.publish)
    written(journal, range(3))
    if (child := os.fork()) == 0:
        journal.flush()
        os._exit(len(redis.messages))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    journal.flush()
    assert redis.told() == [0, 1, 2]


def test_the_hook_of_a_fork_keeps_no_journal_that_nobody_has() -> None:
    journal = Journal(Redis().publish)
    gone = weakref.ref(journal)
    del journal
    gc.collect()
    assert gone() is None


def test_above_its_rate_it_leaves_tasks_out_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(Redis().publish, rate=3)
    assert [journal.admits() for _ in range(5)] == [True] * 3 + [False] * 2
    (said,) = caplog.messages
    assert "Events tell of 3 tasks a second and process (CELERIAC_EVENTS_PER_SECOND)" in said
