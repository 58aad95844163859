"""The log's lines tell of a task what its call lets them tell."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest

from celeriac.roles.role import Role
from celeriac.run import lines
from celeriac.run.sparing import FEW, WITHIN, Sparing
from celeriac.settle.outcome import Started


def started(**headers: Any) -> Started:
    kept = {"retry_count": 0, "max_retries": None, "tries": 0, "max_rounds": 1, "losses": 0, "priority": 0}
    whose = {
        "timeout": None,
        "parent_id": None,
        "lock_key": None,
        "enqueued_by": None,
        "token": "6a1f07c2-5d35-4b8e-a1ce-0d9e7a4c2b11",
    }
    about = {"account": "acme", "args": [], "kwargs": {"patient_id": 4711}, "headers": headers, "expired": None}
    return Started(id=7, task_id="i", role="bill", **about, **kept, **whose)


def test_a_line_has_an_event_its_attempt_and_its_callers_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    traced = {"headers": {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
    task = started(**traced)._replace(retry_count=2, tries=1)
    lines.claimed(task, Role(name="bill"))
    (line,) = caplog.records
    told = line.data  # type: ignore[attr-defined]
    assert (told["event"], told["attempt"], told["round"]) == ("task.claimed", 3, 2)
    assert (told["account"], told["ticket"], "lock_key" in told) == ("acme", "6a1f07c2", False)
    assert line.getMessage().endswith("(bill) of account acme")
    assert (told["trace_id"], told["span_id"]) == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


@pytest.mark.parametrize("said", [None, {}, {"traceparent": 7}, {"traceparent": "00-x"}])
def test_a_call_without_a_trace_has_none(said: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines.claimed(started(headers=said), Role(name="bill"))
    assert "trace_id" not in caplog.records[0].data  # type: ignore[attr-defined]


@pytest.mark.parametrize("mask", [{}, {"argsrepr": "(***)"}, {"kwargsrepr": "{***}"}])
def test_a_masked_argument_is_in_no_line(mask: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines.claimed(started(**mask), Role(name="bill", lock_by="patient_id"))
    (line,) = caplog.records
    assert ("4711" in caplog.text) is (not mask)
    assert ("patient" in line.data) is (not mask)  # type: ignore[attr-defined]
    assert ("acme" in f"{line.data} {caplog.text}") is (not mask)  # type: ignore[attr-defined]


def test_failures_that_are_alike_are_told_a_few_times_a_minute_and_then_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(lines, "_sparing", Sparing())

    def fail(says: str) -> None:
        run: Any = SimpleNamespace(became="failed", outcome=SimpleNamespace(error=says), task=started())
        lines.settled(run, None)

    for n in range(20):
        fail(f"HTTPError: 502 of store {n}")
    fail("KeyError: 'x'")
    assert len(caplog.records) == FEW + 1
    later = time.monotonic() + WITHIN
    monkeypatch.setattr(time, "monotonic", lambda: later)
    fail("HTTPError: 502 of store 7")
    line: Any = caplog.records[-1]
    assert line.getMessage().endswith("failed: HTTPError: 502 of store 7 (15 more like it before)")
    assert line.data["left_out"] == 15
