"""A made-up day on a fleet: waits compared with FIFO, shares with fair ones, the promise of fairness, the backlog."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

from celeriac.insights.fairness.shares import Claim, fair_slots
from celeriac.roles.role import WIDEST, Role
from celeriac.simulate.backlog import Backlog, SimulatedTask
from celeriac.simulate.day import Day
from celeriac.simulate.fifo import Fifo
from celeriac.simulate.fleet import Fleet
from celeriac.simulate.line import SimulatedRole, TicketPace
from celeriac.simulate.waits import Ledger, WaitTimes, at

#: Samples of the state in a day, lines of its course, and samples for each comparison of shares, which reads every
#: account.
LOOKS, LINES, EACH = 288, 24, 3


class HeldSlots:
    """Held and fair slots of watched accounts, summed over the samples in which tasks waited."""

    def __init__(self, watched: Collection[int]) -> None:
        self.held = dict.fromkeys(watched, 0)
        self.fair = dict.fromkeys(watched, 0.0)
        self.all_held = self.all_fair = 0.0

    def look(self, backlog: Backlog, window: int) -> None:
        """Take a sample, which reads all accounts with work."""
        accounts = [*{**backlog.ready, **backlog.holding}]
        claims = [Claim(len(backlog.ready.get(a, ())) + backlog.holding.get(a, 0)) for a in accounts]
        fair = dict(zip(accounts, fair_slots(claims, window), strict=True))
        for account in self.held:
            self.held[account] += backlog.holding.get(account, 0)
            self.fair[account] += fair.get(account, 0.0)
        self.all_held += backlog.active
        self.all_fair += sum(fair.values())

    def parts(self, account: int) -> dict[str, float | None]:
        """Return held and fair slots as parts of all slots; None if no task ever waited."""
        return {
            "held": self.held[account] / self.all_held if self.all_held else None,
            "fair": self.fair[account] / self.all_fair if self.all_fair else None,
        }


class Simulation:
    """One day, run once."""

    def __init__(self, day: Day, role: Role, workers: int, pace: TicketPace) -> None:
        self.day = day
        self.role = role
        watched = [day.noisy, *day.heaviest]
        self.backlog = Backlog(day.names)
        self.fifo = Fifo(workers, pace.arrive, pace.between)
        self.waits = Ledger(day.accounts, watched)
        self.waits_in_order = Ledger(day.accounts, watched)
        self.slots = HeldSlots(watched)
        self.course: list[dict[str, float]] = []
        self.tasks = 0
        self.fleet = Fleet(
            [SimulatedRole(role, self.backlog, pace)], workers, on_start=self._started, on_look=self._look,
            look_every=day.length / LOOKS,
        )  # fmt: skip

    def run(self) -> dict[str, Any]:
        """Run the day and return the object of `celeriac workers simulate --json`."""
        self.fleet.run(self._arrivals())
        self._look(self.fleet.now)
        rounds, within = self.backlog.rounds, self.course[:LOOKS]
        return {
            "workers": self.fleet.workers,
            "window": (self.role.window or WIDEST),
            "accounts": self.day.accounts,
            "hours": self.day.hours,
            "seed": self.day.seed,
            "tasks": self.tasks,
            "drained_after_hours": self.fleet.ended / 3600,
            "utilisation": sum(look["busy"] for look in within) / len(within),
            "backlog": {"mean": sum(look["waiting"] for look in within) / len(within),
                "max": max(look["waiting"] for look in self.course), "at_the_end": within[-1]["waiting"]},
            "fairness": {"holds": not rounds.broken, "passes": rounds.passes, "broken": rounds.broken,
                "longest_round": rounds.longest, "bound": self.day.accounts - 1},
            "waits": list(self._waits()),
            "shares": [{"of": name, "tasks": self.waits.watched[account].n, **self.slots.parts(account)}
                for name, account in self._watched()],
            "course": list(self._course()),
        }  # fmt: skip

    def _arrivals(self) -> Iterator[SimulatedTask]:
        for task in self.day.arrivals():
            began = self.fifo.start(task.due, task.seconds)
            self.waits_in_order.add(task.account, began - task.due)
            yield task
            self.tasks += 1

    def _started(self, task: SimulatedTask, now: float) -> None:
        self.waits.add(task.account, now - task.due)

    def _look(self, now: float) -> None:
        backlog, fleet = self.backlog, self.fleet
        if backlog.waiting and len(self.course) % EACH == 0:
            self.slots.look(backlog, (self.role.window or WIDEST))
        waiting, busy = self.tasks - self.waits.all.n, fleet.running / fleet.workers
        self.course.append({"at": now, "tasks": self.tasks, "waiting": waiting, "busy": busy})

    def _watched(self) -> Iterator[tuple[str, int]]:
        yield "the noisy customer", self.day.noisy
        for place, account in enumerate(self.day.heaviest, start=1):
            yield f"the largest, number {place}", account

    def _waits(self) -> Iterator[dict[str, Any]]:
        orders = {"fair": self.waits, "fifo": self.waits_in_order}
        for order, ledger in orders.items():
            yield {"of": "all tasks", "order": order, **summary(ledger.all)}
        for order, ledger in orders.items():
            yield {"of": "mean wait of an account", "order": order, **summary_of(ledger.means())}
        for order, ledger in orders.items():
            yield {"of": "longest wait of an account", "order": order, **summary_of(ledger.longest())}
        for name, account in self._watched():
            for order, ledger in orders.items():
                yield {"of": name, "order": order, **summary(ledger.watched[account])}

    def _course(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each part of the day: arrivals, tasks waiting at its end, busy processes."""
        part = LOOKS // LINES
        for line in range(math.ceil(len(self.course) / part)):
            looks = self.course[line * part : (line + 1) * part]
            until = self.course[min((line + 1) * part, len(self.course) - 1)]
            yield {
                "hour": looks[0]["at"] / 3600, "tasks": until["tasks"] - looks[0]["tasks"],
                "backlog": until["waiting"], "utilisation": sum(look["busy"] for look in looks) / len(looks),
            }  # fmt: skip


def summary(waits: WaitTimes) -> dict[str, float]:
    """Summarise waits in seconds."""
    shares = {name: waits.quantile(share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
    return {"n": waits.n, "mean": waits.mean} | shares | {"max": waits.max}


def summary_of(ascending: list[float]) -> dict[str, float]:
    """Summarise values, one for each account."""
    n = len(ascending)
    shares = {name: at(ascending, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))}
    return {"n": n, "mean": sum(ascending) / n if n else 0.0} | shares
