"""Why a role's tasks wait: for each reason of `why`, how many tasks, and when the next pass takes some.

The state tables show the reason of tasks that are not ready. A ready task has the first of these reasons that applies,
in the order of the checks. No backlog is walked: the tasks of an account are counted up to what a pass could give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from celeriac.errors import Unknown
from celeriac.insights.fairness import shares
from celeriac.insights.fairness.shares import AccountShare, Shares
from celeriac.insights.tasks.clock import clock
from celeriac.insights.tasks.counting import Count, RoleDepth, depth
from celeriac.insights.why import checks, delivery
from celeriac.insights.why.checks import Check, Reason
from celeriac.insights.why.forecast import forecast
from celeriac.insights.why.situation import Broker, Situation
from celeriac.store.states import PENDING

#: The checks that hold back every task that a pass would take, those about its slots, and those about the pass itself.
_OF_ALL: tuple[Callable[[Situation], Check], ...] = (checks.role,)
_OF_ROOM: tuple[Callable[[Situation], Check], ...] = (checks.rate, checks.window)
_OF_PASS: tuple[Callable[[Situation], Check], ...] = (delivery.redis, delivery.passes, delivery.worker)

#: For an account that could have more, and for one that has its fair share.
_LACKS, _HAS_ITS_SHARE = "their account holds less than its fair share", "their account holds its fair share"


@dataclass(frozen=True, slots=True)
class Waits:
    """A number of tasks that wait for the same reason. `reason`: a word of `why`; `room`: that of the list they are in.

    `until`: when it may be over, None if unknown.
    """

    reason: Reason
    room: str
    says: str
    n: Count
    until: datetime | None = None


def waits_of(
    connection: Connection, role: str, broker: Broker | None = None, accounts: Shares | None = None
) -> list[Waits]:
    """Return all reasons of the role's pending tasks, those of ready ones first; reasons without tasks are left out.

    `accounts`: the role's shares if they were read already, of `shares.MOST` accounts at most. Raises Unknown.
    """
    depths = depth(connection, role)
    if not depths:
        raise Unknown(f"there is no role {role!r:.100}")
    s = _situation(connection, depths[0], broker)
    waits = [*_ready(s, depths[0], accounts), *_rooms(depths[0])]
    return [one for one in waits if one.n.n or not one.n.exact]


def _situation(connection: Connection, of: RoleDepth, broker: Broker | None) -> Situation:
    """Build the situation of a task that has waited as long as the role's oldest ready one, and for nothing else."""
    due = clock(connection) - timedelta(seconds=of.oldest_ready_seconds or 0.0)
    task: dict[str, Any] = {
        "id": 0, "role": of.role, "account": "", "status": PENDING, "waits_for": None, "scheduled_for": due,
        "created_at": due, "claimed_at": None, "expires_at": None, "priority": 0, "lock_key": None,
    }  # fmt: skip
    return Situation(connection, task, broker)


def _rooms(of: RoleDepth) -> Iterator[Waits]:
    yield Waits("later", "time", "not due yet", of.later)
    yield Waits("lock", "lock", "behind a lock", of.behind)
    yield Waits("account_paused", "account", "their account is paused, or may have nothing", of.parked)
    yield Waits("members", "members", "until their group has finished", of.members)


def _ready(s: Situation, of: RoleDepth, known: Shares | None) -> Iterator[Waits]:
    if (no := _no(s, _OF_ALL)) is not None:
        yield _waits(no, of.ready)
        return
    accounts = _Accounts(of, known or shares.shares(s.connection, of.role, limit=shares.MOST))
    yield Waits("account_paused", "nothing", "their account is paused", accounts.sum(lambda a: a.paused))
    shut = accounts.sum(lambda a: not a.paused and a.cap == 0)
    yield Waits("account_cap", "nothing", "their account may have nothing", shut)
    if (no := _no(s, _OF_ROOM)) is not None:
        yield from _without_room(no, accounts)
        return
    yield Waits("account_cap", "nothing", "their account has as many as its cap", accounts.sum(_is_at_cap))
    yield from _in_turn(s, accounts)


def _without_room(no: Check, accounts: _Accounts) -> Iterator[Waits]:
    """Split the tasks that wait for a slot by whether their account has less than its fair share."""
    lacks = accounts.sum(lambda a: _is_open(a) and a.lacks >= 1)
    yield _waits(no, lacks, f"{no.sentence}; {_LACKS}")
    has = accounts.sum(lambda a: _is_open(a) and a.lacks < 1)
    yield _waits(no, has, f"{no.sentence}; {_HAS_ITS_SHARE}")


def _in_turn(s: Situation, accounts: _Accounts) -> Iterator[Waits]:
    taken = accounts.taken(s.free)
    rest = accounts.sum(lambda a: _is_open(a) and not _is_at_cap(a), less=taken)
    sentence = "not their turn: with the next pass their account has its fair share, or its cap"
    yield _next(s, taken)
    yield Waits("not_its_turn", "nothing", sentence, rest)


def _next(s: Situation, taken: Count) -> Waits:
    if (no := _no(s, _OF_PASS)) is not None:
        return _waits(no, taken)
    outlook = forecast(s, "runnable")
    return Waits("runnable", "nothing", f"next in line: {outlook.next}", taken, outlook.expected)


def _no(s: Situation, asked: Sequence[Callable[[Situation], Check]]) -> Check | None:
    return next((check for ask in asked if (check := ask(s)).outcome == "no"), None)


def _waits(no: Check, n: Count, sentence: str | None = None) -> Waits:
    return Waits(no.reason or "unknown", "nothing", sentence or no.sentence, n)


def _is_open(a: AccountShare) -> bool:
    return not a.paused and a.cap != 0


def _is_at_cap(a: AccountShare) -> bool:
    return _is_open(a) and a.cap is not None and a.held >= a.cap


class _Accounts:
    """The role's accounts with ready tasks. If there are too many to read all, counts are lower bounds."""

    def __init__(self, of: RoleDepth, known: Shares) -> None:
        self.ready, self.known = of.ready, known

    def sum(self, is_meant: Callable[[AccountShare], bool], less: Count | None = None) -> Count:
        """Count the ready tasks of these accounts, without `less`. For all accounts: the role's own count."""
        n = sum(a.waiting.n for a in self.known.accounts if is_meant(a))
        if all(is_meant(a) for a in self.known.accounts if a.waiting.n):
            n = max(n, self.ready.n)
        is_exact = self.known.is_all and all(a.waiting.exact for a in self.known.accounts if is_meant(a))
        taken = less or Count(0)
        is_exact = is_exact or (self.ready.exact and n == self.ready.n)
        return Count(max(0, n - taken.n), is_exact and taken.exact)

    def taken(self, free: int) -> Count:
        """Count the tasks that a pass with `free` slots takes, at most as many of an account as its cap allows."""
        wants = [a for a in self.known.accounts if _is_open(a)]
        n = sum(min(a.waiting.n, a.waiting.n if a.cap is None else max(0, a.cap - a.held)) for a in wants)
        is_exact = n >= free or (self.known.is_all and all(a.waiting.exact for a in wants))
        return Count(max(0, min(n, free)), is_exact)
