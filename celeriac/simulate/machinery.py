"""The processes that ran a history, and the machinery's pace, estimated from that history. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, median
from typing import NamedTuple

from celeriac.insights.history.ran import LastRun, Process
from celeriac.simulate.line import TicketPace


@dataclass(frozen=True, slots=True)
class PastTicket:
    """Tasks that one process took together and ran one by one. `open`: the first time a pass could claim them."""

    role: str
    process: Process
    open: float
    started: float
    ended: float
    tasks: int


class End(NamedTuple):
    """The end of a run that was not its task's last. `after`: the earliest possible start of the run."""

    at: float
    of: LastRun
    kind: str
    after: float


class Earlier(NamedTuple):
    """A run that was not its task's last, in epoch seconds. Both its possible and its actual start are estimates."""

    of: LastRun
    due: float
    started: float
    ended: float


Ends = Mapping[Process, Sequence[End]]


def tickets(ran: Iterable[LastRun], capped: Collection[str]) -> list[PastTicket]:
    """Return the tickets. A task with a lock key, cap or delay counts as open only from its claim."""
    together: dict[tuple[Process, float], list[LastRun]] = defaultdict(list)
    for one in ran:
        together[one.process, one.started].append(one)
    return [
        PastTicket(
            some[0].role, process,
            max(one.claimed if one.later or one.lock_key or one.account in capped else one.due for one in some),
            started, max(one.ended for one in some), len(some),
        )
        for (process, started), some in together.items()
    ]  # fmt: skip


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """Return the most spans that overlap: the number of processes, if all ever had work at once."""
    steps = [step for start, end in spans for step in ((start, 1), (end, -1))]
    most, now = 1, 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most


def ends_by_process(ran: Iterable[LastRun], processes: Collection[Process]) -> Ends:
    """Return the runs that were not their task's last, by process; without those whose pid several processes had."""
    of_pid: dict[int | None, list[Process]] = defaultdict(list)
    for process in processes:
        of_pid[process[1]].append(process)
    runs: dict[Process, list[End]] = defaultdict(list)
    for one in ran:
        after = one.created
        for before in one.earlier:
            if len(of_pid[before.pid]) == 1:
                runs[of_pid[before.pid][0]].append(End(before.ended, one, before.kind, after))
            after = before.ended
    return runs


def earlier(ran: Sequence[LastRun], tickets: Iterable[PastTicket], ends: Ends) -> list[Earlier]:
    """Estimate the runs that were not their task's last.

    Such a run began no earlier than its process' last known run ended. It began at that moment if some task waited all
    the time; otherwise the process may have been idle, and the run is taken to be no longer than the median of its
    role's runs with the same kind of end. A task's first run could start when the task was enqueued, but no longer
    before its start than any task of its role waited.
    """
    patience: dict[str, float] = defaultdict(float)
    for one in ran:
        patience[one.role] = max(patience[one.role], one.started - one.due)
    longest, waited = list(_longest(tickets, ends)), _waited(ran)
    usual: dict[tuple[str, str], list[float]] = defaultdict(list)
    for end, seconds in longest:
        usual[end.of.role, end.kind].append(seconds)
    medians = {key: median(some) for key, some in usual.items()}
    runs = []
    for end, seconds in longest:
        usual_at_most = seconds if waited(end.at - seconds, end.at) else medians[end.of.role, end.kind]
        started = end.at - min(seconds, usual_at_most)
        is_first = end.after == end.of.created and started - end.after <= patience[end.of.role]
        runs.append(Earlier(end.of, end.after if is_first else started, started, end.at))
    return runs


def _waited(ran: Sequence[LastRun]) -> Callable[[float, float], bool]:
    """Return a function that returns whether some task waited between two times. `ran`: ordered by `due`."""
    dues = [one.due for one in ran]
    until = list(accumulate((one.started for one in ran), max))
    return lambda since, to: bool(n := bisect_right(dues, since)) and until[n - 1] >= to


def _longest(tickets: Iterable[PastTicket], ends: Ends) -> Iterator[tuple[End, float]]:
    """Yield each run's maximum duration (seconds). A run in the same ticket as a known one took no time."""
    of_process: dict[Process, list[PastTicket]] = defaultdict(list)
    for ticket in tickets:
        of_process[ticket.process].append(ticket)
    for process, some in ends.items():
        known = sorted((ticket.started, ticket.ended) for ticket in of_process[process])
        free_at = 0.0
        for end in sorted(some, key=lambda end: end.at):
            before = known[: bisect_left(known, (end.at,))]
            free_at = max(free_at, before[-1][1] if before else 0.0)
            if free_at <= end.at:
                yield end, end.at - max(free_at, end.after)
                free_at = end.at


def paces(
    roles: Sequence[str], ran: Sequence[LastRun], gaps: Mapping[PastTicket, float], workers: int
) -> dict[str, TicketPace]:  # fmt: skip
    """Return the pace of each role; for a role without enough history, the pace of all roles."""
    starts, of_role = _idle_starts(ran, workers), defaultdict[str, list[float]](list)
    for ticket, gap in gaps.items():
        of_role[ticket.role].append(gap)
    arrive = median([one for some in starts.values() for one in some] or [TicketPace.arrive])
    between = median(gaps.values() or [TicketPace.between])
    return {
        role: TicketPace(
            max(0.0, median(starts[role]) if role in starts else arrive),
            fmean(of_role[role]) if role in of_role else between,
        )
        for role in roles
    }


def _idle_starts(ran: Sequence[LastRun], workers: int) -> dict[str, list[float]]:
    """Return the waits until the claim, of tasks that found an idle process and a free key. `ran`: ordered by `due`."""
    ends = sorted(one.ended for one in ran)
    begin = min(one.started for one in ran)
    until: dict[str, float] = {}
    waits: dict[str, list[float]] = defaultdict(list)
    for before, one in enumerate(ran):
        is_free = one.lock_key is None or until.get(one.lock_key, 0.0) <= one.due
        if one.lock_key is not None:
            until[one.lock_key] = max(until.get(one.lock_key, 0.0), one.ended)
        is_idle = before - bisect_right(ends, one.due) < workers
        if is_free and is_idle and one.due >= begin and not one.later:
            waits[one.role].append(one.claimed - one.due)
    return waits


def gaps(tickets: Iterable[PastTicket], ends: Ends) -> dict[PastTicket, float]:
    """Return the seconds between a ticket's end and the start of its process' next ticket.

    Only pairs whose second ticket was open in time, and between which the process ended no other known run.
    """
    of_process: dict[Process, list[PastTicket]] = defaultdict(list)
    for ticket in tickets:
        of_process[ticket.process].append(ticket)
    seconds: dict[PastTicket, float] = {}
    for process, some in of_process.items():
        others = sorted(end.at for end in ends.get(process, ()))
        for before, after in _next(some):
            if after.open <= before.ended and bisect_right(others, before.ended) == bisect_right(others, after.started):
                seconds[before] = after.started - before.ended
    return seconds


def _next(tickets: Iterable[PastTicket]) -> Iterator[tuple[PastTicket, PastTicket]]:
    """Yield pairs of successive tickets of a process. With threads, the ticket that ended last is continued first."""
    ended: list[PastTicket] = []
    steps = [(t.ended, False, t) for t in tickets] + [(t.started, True, t) for t in tickets]
    for _, starts, ticket in sorted(steps, key=lambda step: step[:2]):
        if not starts:
            ended.append(ticket)
        elif ended:
            yield ended.pop(), ticket
