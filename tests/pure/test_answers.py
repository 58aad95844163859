"""What is told over remote control is a message that whoever asked reads."""

from __future__ import annotations

import threading

import pytest
from kombu.utils.json import dumps

from celeriac.operate.revoke import MOST_NAMED, in_words
from celeriac.worker import holdings
from celeriac.worker.holdings import MOST, Desk, fitting


def whole(n: int) -> str:
    return "x" * n


def short(_: int) -> str:
    return "short"


def test_each_is_told_whole_where_all_fit() -> None:
    assert fitting([3, 4], whole, short, room=100) == ["xxx", "xxxx"]


def test_what_is_more_than_its_share_is_told_in_short_and_takes_no_others_room() -> None:
    assert fitting([1000, 3, 30], whole, short, room=100) == ["short", "xxx", "x" * 30]


def test_what_has_no_room_at_all_is_left_out_and_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    told = fitting(range(100), whole, short, room=90)
    assert len(dumps(told)) <= 90 + 2 * len(told)
    assert 10 < len(told) < 100
    assert f"inspect shows {len(told)} of 100 tasks" in caplog.text


def test_of_many_that_were_revoked_some_are_named() -> None:
    assert in_words({f"task-{n}": "cancelled" for n in range(3)}) == "cancelled: task-0, task-1, task-2"
    told = in_words({f"{n}" * 200: "asked" for n in range(10_000)})
    assert told.endswith(f" and {10_000 - MOST_NAMED:,} more")
    assert len(told) < 300_000


def test_a_question_that_is_refused_leaves_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "PATIENCE", 0.01)
    silent, asked = threading.Event(), Desk()
    for _ in range(MOST):
        asked.ask(lambda: silent.wait(30))
    assert not caplog.messages
    assert "error" in asked.ask(lambda: None)
    assert "A remote control command was refused" in caplog.text
    silent.set()
