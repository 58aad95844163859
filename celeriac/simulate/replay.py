"""A role's own history, once more: what would have been with so many workers, and how far off a replay is.

What the machinery takes (`Pace`) and how many processes there were is read from the same history. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from celeriac.insights.ran import Ran
from celeriac.roles.role import Role
from celeriac.simulate.backlog import Backlog, Policy, Task
from celeriac.simulate.fleet import Fleet, Pace
from celeriac.simulate.report import told
from celeriac.simulate.waits import Waits


@dataclass(frozen=True, slots=True)
class Ticket:
    """Tasks that one process began together, one after the other. `open`: from when on a pass could claim them."""

    open: float
    started: float
    ended: float


class Replay:
    """Of what ran of one role, at least one task; `policies` of its accounts, by name."""

    def __init__(self, ran: Sequence[Ran], role: Role, policies: Mapping[str, Policy]) -> None:
        self.ran = sorted(ran, key=lambda one: (one.due, one.id))
        self.role = role
        self.names = sorted({one.account for one in ran})
        self.policies = {n: policies[name] for n, name in enumerate(self.names) if name in policies}
        self.tickets = _tickets(self.ran, {name for name, policy in policies.items() if policy.cap is not None})
        self.there = _most_at_once(self.tickets)
        self.pace = Pace(_arrive(self.ran, self.there), _between(self.tickets))

    def report(self, workers: int | None) -> dict[str, Any]:
        """What `celeriac simulate --from-history --json` shows of a role."""
        happened, (replayed, _) = self._happened(), self._with(self.there)
        would, fleet = self._with(workers or self.there)
        return {
            "role": self.role.name,
            "tasks": len(self.ran),
            "ran_before": sum(one.again for one in self.ran),
            "hours": (max(one.ended for one in self.ran) - self.ran[0].due) / 3600,
            "accounts": len(self.names),
            "workers_there": self.there,
            "arrive": self.pace.arrive,
            "between": self.pace.between,
            "happened": told(happened),
            "replayed": told(replayed),
            "error": {
                "mean": _off(replayed.mean, happened.mean),
                "p95": _off(replayed.quantile(0.95), happened.quantile(0.95)),
            },
            "workers": fleet.workers,
            "would_be": told(would),
            "would_take_hours": fleet.ended / 3600,
            "fairness": {"holds": not fleet.backlog.rounds.broken, "broken": fleet.backlog.rounds.broken},
        }

    def _happened(self) -> Waits:
        waits = Waits()
        for one in self.ran:
            waits.add(max(0.0, one.started - one.due))
        return waits

    def _with(self, workers: int) -> tuple[Waits, Fleet]:
        waits = Waits()
        fleet = Fleet(
            self.role, Backlog(self.names, self.policies), workers, self.pace,
            on_start=lambda task, now: waits.add(now - task.due),
        )  # fmt: skip
        fleet.run(self._arrivals())
        return waits, fleet

    def _arrivals(self) -> Iterator[Task]:
        """From 0 on. Each task of a ticket took the same part of it: a ticket's history has one start."""
        places = {name: n for n, name in enumerate(self.names)}
        begin = self.ran[0].due
        for one in self.ran:
            ticket, n = self.tickets[_key(one)]
            seconds = max(0.0, ticket.ended - ticket.started) / n
            yield Task(-one.priority, one.due - begin, one.id, places[one.account], seconds, one.lock_key)


_Key = tuple[tuple[str | None, int | None], float]


def _key(one: Ran) -> _Key:
    return one.process, one.started


def _tickets(ran: Sequence[Ran], capped: Collection[str]) -> dict[_Key, tuple[Ticket, int]]:
    """Each with how many tasks it had. What a lock key or a cap may have held back was open when it was claimed."""
    together: dict[_Key, list[Ran]] = defaultdict(list)
    for one in ran:
        together[_key(one)].append(one)
    return {
        key: (
            Ticket(
                max(one.claimed if one.lock_key or one.account in capped else one.due for one in some),
                some[0].started,
                max(one.ended for one in some),
            ),
            len(some),
        )
        for key, some in together.items()
    }


def _most_at_once(tickets: Mapping[_Key, tuple[Ticket, int]]) -> int:
    """How many tickets were under way: the processes there were, if there ever was work for all."""
    steps = [(ticket.started, 1) for ticket, _ in tickets.values()] + [(t.ended, -1) for t, _ in tickets.values()]
    most, now = 1, 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most


def _arrive(ran: Sequence[Ran], workers: int) -> float:
    """The usual wait of a task that found a process idle."""
    ends = sorted(one.ended for one in ran)
    alone = [
        one.started - one.due
        for before, one in enumerate(ran)
        if before - bisect_right(ends, one.due) < workers and one.lock_key is None
    ]
    return max(0.0, median(alone)) if alone else Pace.arrive


def _between(tickets: Mapping[_Key, tuple[Ticket, int]]) -> float:
    """The mean time from a ticket's end to the start of its process' next, where that one was open by then."""
    gaps: list[float] = []
    of_process: dict[Any, list[Ticket]] = defaultdict(list)
    for (process, _), (ticket, _) in tickets.items():
        of_process[process].append(ticket)
    for some in of_process.values():
        gaps += _gaps(some)
    return fmean(gaps) if gaps else Pace.between


def _gaps(tickets: Sequence[Ticket]) -> Iterator[float]:
    """A process of threads has several under way: the one that ended last goes on first."""
    ends: list[float] = []
    steps = [(t.ended, t.open, False) for t in tickets] + [(t.started, t.open, True) for t in tickets]
    for at, since, starts in sorted(steps, key=lambda step: (step[0], step[2])):
        if not starts:
            ends.append(at)
        elif ends and since <= (ended := ends.pop()):
            yield at - ended


def _off(replayed: float, happened: float) -> float | None:
    """As a part of what happened; None where nobody waited."""
    return abs(replayed - happened) / happened if happened else None
