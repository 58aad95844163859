"""Explain why a task has not started: the checks in their order, and the first whose answer is no. Every surface shows
this answer.

No check walks the backlog: each is a few look-ups, or counts up to what one pass could give. A check that still takes
too long ends the explanation, which then has the answers so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.insights.tasks.tasks import events, find, get
from celeriac.insights.why import checks, delivery
from celeriac.insights.why.blockers import blockers_of
from celeriac.insights.why.checks import Check, Reason
from celeriac.insights.why.forecast import forecast
from celeriac.insights.why.situation import Broker, Situation
from celeriac.insights.why.spans import span
from celeriac.store.failures import is_cut_off
from celeriac.store.states import (
    FINISHED,
    GONE,
    RUNNING,
    WAITS_FOR_ACCOUNT,
    WAITS_FOR_LOCK,
    WAITS_FOR_MEMBERS,
    WAITS_FOR_TIME,
)

ORDER: dict[str, Callable[[Situation], Check]] = {
    "due": checks.due, "role": checks.role, "account": checks.account, "members": checks.members, "lock": checks.lock,
    "rate": checks.rate, "window": checks.window, "cap": checks.cap, "turn": checks.turn, "redis": delivery.redis,
    "passes": delivery.passes, "ticket": delivery.ticket, "worker": delivery.worker,
}  # fmt: skip

#: Checks that a claimed task has passed.
_BEFORE_CLAIM = ("due", "role", "account", "members", "lock", "rate", "window", "cap", "turn", "passes")

#: The check for each thing that a task waits for.
_CHECK_OF_WAIT = {
    WAITS_FOR_TIME: "due",
    WAITS_FOR_ACCOUNT: "account",
    WAITS_FOR_MEMBERS: "members",
    WAITS_FOR_LOCK: "lock",
}

#: Maximum number of times that a task is checked if it changes its state meanwhile.
LOOKS = 3

#: The columns that show where a task stands.
_PLACE = ("status", "waits_for", "token", "worker_id", "scheduled_for", "priority")


@dataclass(frozen=True, slots=True)
class Why:
    """The answer. `headline`: one true sentence. `checks`: in their order; those after the first "no" are not made.

    `expected`: when it may start, None if unknown; `basis`: the grounds for that. `next`: what it waits for.
    `ahead`: tasks of its account, at its lock key or among its members that go first, at most 1,000; None: it is in no
    line.
    """

    task: dict[str, Any]
    headline: str
    reason: Reason
    checks: tuple[Check, ...]
    expected: datetime | None
    basis: str
    next: str | None
    ahead: int | None


@dataclass(frozen=True, slots=True)
class History:
    """A task's events. `ahead`: as in `Why`. `why`: its headline; None once the task has begun."""

    task: dict[str, Any]
    events: list[dict[str, Any]]
    ahead: int | None
    why: str | None


def why(
    connection: Connection, identifier: int | str, broker: Broker | None = None, *, within: float = math.inf
) -> Why:
    """Explain the task that `find` returns. Without a broker, answers that need Redis are unknown. Raises Unknown.

    After `within` seconds, or if Postgres stops a statement (`statement_timeout`), no further check is made.
    """
    task, until = get(connection, identifier), time.monotonic() + within
    for _ in range(LOOKS):
        answer, is_whole = _explain(connection, task, broker, until)
        if not is_whole:  # After a stopped statement its transaction takes no other.
            return answer
        again = find(connection, task["id"])
        if again is None:
            return _over(task | {"status": "over, and its row is gone"})
        if all(again[name] == task[name] for name in _PLACE):
            return _with_blockers(connection, answer)
        task = again
    basis = "unknown, because it moves just now"
    return Why(task, "it moves just now: try again", "unknown", (), None, basis, "another attempt", None)


def history(connection: Connection, identifier: int | str, broker: Broker | None = None) -> History:
    """Return the task's events, and why it waits. Raises Unknown."""
    answer = why(connection, identifier, broker)
    waits = None if answer.reason in ("running", "finished") else answer.headline
    return History(answer.task, events(connection, answer.task["id"]), answer.ahead, waits)


def _with_blockers(connection: Connection, answer: Why) -> Why:
    """Name a lock on the task's rows first, if somebody holds one, because no check sees that."""
    if answer.reason == "finished" or not (met := blockers_of(connection, answer.task)):
        return answer
    locked = f"somebody has it locked: {met[0].sentence}; {met[0].cure}"
    if answer.reason == "running":
        return replace(answer, headline=f"{answer.headline}; its outcome is written later, as {locked}")
    basis = "unknown, because somebody has it locked"
    return replace(
        answer, headline=locked, reason="locked_row", expected=None, basis=basis, next="the end of that transaction"
    )


def _explain(connection: Connection, task: dict[str, Any], broker: Broker | None, until: float) -> tuple[Why, bool]:
    """Return the answer, and whether it is complete; it is not if a check was left out."""
    if task["status"] in FINISHED:
        return _over(task), True
    if task["status"] == RUNNING:
        return _running(task), True
    s = Situation(connection, task, broker)
    asked, slow = _asked(s, until)
    no = next((check for check in asked if check.outcome == "no"), None)
    if slow is not None:
        return _in_part(task, asked, slow), False
    try:
        return _whole(s, task, asked, no), True
    except DBAPIError as error:
        if not is_cut_off(error):
            raise
        return _in_part(task, asked, "when it may start", no), False


def _whole(s: Situation, task: dict[str, Any], asked: list[Check], no: Check | None) -> Why:
    reason, headline = (no.reason or "unknown", no.sentence) if no else _standing(s, asked)
    if no is None and s.is_expired:
        headline += "; it has expired, and whoever takes it up cancels it"
    outlook = forecast(s, reason)
    return Why(task, headline, reason, tuple(asked), outlook.expected, outlook.basis, outlook.next, s.ahead)


def _in_part(task: dict[str, Any], asked: list[Check], slow: str, no: Check | None = None) -> Why:
    """Return the answers so far, if the check `slow` took too long."""
    headline = f"why it waits is known in part: {slow} took too long to check"
    reason, sentence = (no.reason or "unknown", no.sentence) if no else ("unknown", headline)
    basis = f"unknown, because {slow} took too long to check"
    return Why(task, sentence, reason, tuple(asked), None, basis, "another attempt", None)


def _asked(s: Situation, until: float) -> tuple[list[Check], str | None]:
    """Run the checks, up to the first "no" or the first that took too long, whose name is returned."""
    asked: list[Check] = []
    said_no, slow = False, None
    for name, ask in ORDER.items():
        if said_no:
            asked.append(Check(name, "not asked", "not asked yet"))
        elif slow is not None:
            asked.append(Check(name, "not asked", "not checked: there was no time left"))
        elif not s.is_pending and name in _BEFORE_CLAIM:
            asked.append(Check(name, "yes", "it is claimed"))
        else:
            check = None if time.monotonic() > until else _answer(s, ask)
            slow = name if check is None else None
            asked.append(check or Check(name, "unknown", "this took too long to check"))
            said_no = asked[-1].outcome == "no"
    return asked, slow


def _answer(s: Situation, ask: Callable[[Situation], Check]) -> Check | None:
    """Return the check's answer, None if Postgres stopped it."""
    try:
        return ask(s)
    except DBAPIError as error:
        if not is_cut_off(error):
            raise
        return None


def _standing(s: Situation, asked: Sequence[Check]) -> tuple[Reason, str]:
    """Return reason and headline of a task that no check holds back."""
    said = {check.name: check for check in asked}
    if s.task["waits_for"] is not None:
        return "entering", f"nothing holds it back: {said[_CHECK_OF_WAIT[s.task['waits_for']]].sentence}"
    if s.is_pending:
        return "runnable", "nothing holds it back: the next pass of its role takes it"
    if said["ticket"].facts.get("taken"):
        return "taken", f"it is claimed, and {said['ticket'].sentence}"
    where = "its ticket waits in Redis" if said["ticket"].outcome == "yes" else "its ticket, if it is not lost, waits"
    return "in_queue", f"it is claimed: {where} for a worker of the queue {s.of.queue!r}; {said['worker'].sentence}"


def _running(task: dict[str, Any]) -> Why:
    age = task["heartbeat_age"]
    stale = age > min(task["stale_after"], GONE)
    freed = "" if age > task["stale_after"] else f" after {span(task['stale_after'])} of silence"
    heard = f"silent for {span(age)}, stale: the sweep frees it{freed}" if stale else f"heard {span(age)} ago"
    headline = f"it runs on {task['worker_id']} ({heard})"
    passed = tuple(Check(name, "yes", "it has begun") for name in ORDER)
    return Why(task, headline, "running", passed, None, "it has begun", None, None)


def _over(task: dict[str, Any]) -> Why:
    return Why(task, f"it is {task['status']}", "finished", (), None, "it is over", None, None)
