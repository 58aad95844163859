"""History replayed with another number of workers, and the replay's error.

Roles that ran in the same workers are replayed together, on the processes they shared. The machinery's pace and the
number of processes are read from the same history. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from celeriac.insights.history.ran import LastRun
from celeriac.roles.role import Role
from celeriac.simulate import machinery
from celeriac.simulate.backlog import Backlog, SimulatedPolicy, SimulatedTask
from celeriac.simulate.fleet import Fleet
from celeriac.simulate.line import SimulatedRole
from celeriac.simulate.report import summary
from celeriac.simulate.waits import WaitTimes

#: Seconds between two polls of workers for work without a wake-up, by default.
POLL = 1.0


def together(roles: Mapping[str, Sequence[LastRun]]) -> list[list[str]]:
    """Return the names of roles that ran something; roles that shared a worker are in one list."""
    groups: list[tuple[set[str | None], list[str]]] = []
    for name, ran in roles.items():
        workers, names = {one.process[0] for one in ran}, [name]
        for group in [group for group in groups if group[0] & workers]:
            groups.remove(group)
            workers, names = workers | group[0], group[1] + names
        groups.append((workers, names))
    return [names for _, names in groups]


class Replay:
    """A replay of roles that ran at least one task, in the same processes. `policies`: by account name."""

    def __init__(
        self, ran: Iterable[LastRun], roles: Sequence[Role], policies: Mapping[str, SimulatedPolicy], poll: float = POLL
    ) -> None:
        self.ran = sorted(ran, key=lambda one: (one.due, one.id))
        self.roles = roles
        self.policies = policies
        self.poll = poll
        #: The first start. No process is known before it, so earlier tasks wait from this moment on.
        self.begin = min(one.started for one in self.ran)
        tickets = machinery.tickets(self.ran, {name for name, policy in policies.items() if policy.cap is not None})
        self.there = machinery.most_at_once((ticket.started, ticket.ended) for ticket in tickets)
        ends = machinery.ends_by_process(self.ran, {ticket.process for ticket in tickets})
        self.earlier = machinery.earlier(self.ran, tickets, ends)
        self._gaps = machinery.gaps(tickets, ends)
        self.paces = machinery.paces([role.name for role in roles], self.ran, self._gaps, self.there)
        self._tickets = {(ticket.process, ticket.started): ticket for ticket in tickets}
        self.compared = [one for one in self.ran if not (one.later or one.moved is not None)]

    def report(self, workers: int | None) -> list[dict[str, Any]]:
        """Return the rows of `celeriac workers simulate --from-history --json`, with `waits` for sums."""
        happened, (replayed, _) = self._happened(), self._with(self.there)
        would, fleet = self._with(workers or self.there)
        return [
            self._of_role(role, line, [waits[role.name] for waits in (happened, replayed, would)], fleet)
            for role, line in zip(self.roles, fleet.lines, strict=True)
        ]

    def _of_role(self, role: Role, line: SimulatedRole, waits: Sequence[list[float]], fleet: Fleet) -> dict[str, Any]:
        ran = [one for one in self.ran if one.role == role.name]
        pace, rounds = self.paces[role.name], line.backlog.rounds
        return {
            "role": role.name,
            "with": [other.name for other in self.roles if other is not role],
            "tasks": len(ran),
            "later": sum(one.later for one in ran),
            "moved": sum(one.moved is not None and not one.later for one in ran),
            "ran_before": sum(one.again for one in ran),
            "earlier": sum(run.of.role == role.name for run in self.earlier),
            "hours": (max(one.ended for one in ran) - ran[0].due) / 3600,
            "accounts": len({one.account for one in ran}),
            "workers_there": self.there,
            "arrive": pace.arrive,
            "between": pace.between,
            **compared(*waits),
            "workers": fleet.workers,
            "would_take_hours": fleet.ended / 3600,
            "fairness": {"holds": not rounds.broken, "broken": rounds.broken},
            "waits": waits,
        }

    def _happened(self) -> dict[str, list[float]]:
        waits: dict[str, list[float]] = defaultdict(list)
        for one in self.compared:
            waits[one.role].append(max(0.0, one.started - max(one.due, self.begin)))
        return waits

    def _with(self, workers: int) -> tuple[dict[str, list[float]], Fleet]:
        waits: dict[str, list[float]] = defaultdict(list)

        compared = {one.id for one in self.compared}

        def started(task: SimulatedTask, now: float) -> None:
            if task.is_last and task.id in compared:
                waits[self.roles[task.line].name].append(now - max(0.0, task.due))

        lines = [self._line(role) for role in self.roles]
        fleet = Fleet(lines, workers, on_start=started, poll=self.poll)
        fleet.run(self._arrivals(lines))
        return waits, fleet

    def _line(self, role: Role) -> SimulatedRole:
        names = sorted({one.account for one in self.ran if one.role == role.name})
        policies = {n: self.policies[name] for n, name in enumerate(names) if name in self.policies}
        return SimulatedRole(role, Backlog(names, policies), self.paces[role.name])

    def _arrivals(self, lines: Sequence[SimulatedRole]) -> list[SimulatedTask]:
        """Return the arrivals, from time 0 on.

        History has one start for a ticket, so its time is divided equally among its tasks. A known run that was not its
        task's last arrives when it began.
        """
        places = [{name: n for n, name in enumerate(line.backlog.names)} for line in lines]
        numbers = {line.role.name: number for number, line in enumerate(lines)}

        def task(one: LastRun, due: float, **more: Any) -> SimulatedTask:
            line = numbers[one.role]
            return SimulatedTask(
                -one.priority, due - self.begin, one.id, places[line][one.account], key=one.lock_key, line=line, **more
            )

        known = [
            task(one, one.due if one.moved is None else max(one.due, one.moved), later=one.later, **self._took(one))
            for one in self.ran
        ]
        unseen = [task(run.of, run.due, seconds=run.ended - run.started, is_last=False) for run in self.earlier]
        return sorted(known + unseen, key=lambda task: (task.due, task.id))

    def _took(self, one: LastRun) -> dict[str, float]:
        """Return the task's part of its ticket's time, and of the time until its process' next ticket."""
        ticket = self._tickets[one.process, one.started]
        after = self._gaps.get(ticket, self.paces[one.role].between)
        return {"seconds": max(0.0, ticket.ended - ticket.started) / ticket.tasks, "after": after / ticket.tasks}


def compared(happened: Sequence[float], replayed: Sequence[float], would: Sequence[float]) -> dict[str, Any]:
    """Summarise waits (seconds), with the replay's error relative to the real waits."""
    was, again = _waits(happened), _waits(replayed)
    return {
        "happened": summary(was),
        "replayed": summary(again),
        "would_be": summary(_waits(would)),
        "error": {
            "mean": _off(again.mean, was.mean),
            "p95": _off(again.quantile(0.95), was.quantile(0.95)),
        },
    }


def _waits(seconds: Iterable[float]) -> WaitTimes:
    waits = WaitTimes()
    for one in seconds:
        waits.add(one)
    return waits


def _off(replayed: float, happened: float) -> float | None:
    """Return the relative error; None if no task waited."""
    return abs(replayed - happened) / happened if happened else None
