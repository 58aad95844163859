"""A task's way through its states is what is stored of it: what is not is not guessed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from celeriac.insights.tasks.attempts import path

START = datetime(2026, 11, 25, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def task(status: str, **times: float) -> dict[str, Any]:
    unknown = dict.fromkeys(("claimed_at", "started_at", "completed_at"))
    return unknown | {"status": status, "created_at": START} | {name: at(n) for name, n in times.items()}


def event(kind: str, before: str | None, after: str | None, seconds: float) -> dict[str, Any]:
    return {"kind": kind, "from_status": before, "to_status": after, "at": at(seconds)}


def told(row: dict[str, Any], *events: dict[str, Any]) -> list[tuple[str, float | None]]:
    """States, and how long each lasted."""
    return [(stop.status, stop.lasted) for stop in path(row, events)]


def test_what_nothing_happened_to_has_the_times_of_its_row() -> None:
    done = task("completed", claimed_at=2, started_at=5, completed_at=9)
    assert told(done) == [("pending", 2), ("claimed", 3), ("running", 4), ("completed", None)]
    assert told(task("pending")) == [("pending", None)]
    assert told(task("running", started_at=5)) == [("pending", 5), ("running", None)]


def test_since_when_an_earlier_attempt_ran_is_not_guessed() -> None:
    retried = event("retry", "running", "pending", 10)
    row = task("failed", started_at=30, completed_at=31)
    found = path(row, [retried, event("failed", "running", "failed", 31)])
    assert [(stop.status, stop.at, stop.lasted) for stop in found] == [
        ("pending", at(0), None), ("running", None, None), ("pending", at(10), 20.0), ("running", at(30), 1.0),
        ("failed", at(31), None),
    ]  # fmt: skip
    assert [stop.why for stop in found] == ["enqueued", None, "retry", None, "failed"]


def test_an_event_that_changes_no_state_is_no_stop() -> None:
    assert told(task("pending"), event("priority", "pending", "pending", 3)) == [("pending", None)]
    assert told(task("pending"), event("note", None, None, 3)) == [("pending", None)]


def test_what_the_row_says_of_an_attempt_before_the_last_event_is_not_told_twice() -> None:
    handed_back = event("handed_back", "claimed", "pending", 8)
    assert told(task("pending", claimed_at=2), handed_back) == [("pending", 2), ("claimed", 6), ("pending", None)]
