"""Judge: what the ledger and the history say of a round, compared. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from faults.ledger import ACCEPTED, BEGIN, BROKE, END, PAUSED, REFUSED, ROLLED_BACK, THAWED, Line

#: Seconds within which a process that wakes up past its lease is stopped: it looks every quarter of a second, once it
#: gets its turn on a busy machine.
STOPPED_WITHIN = 2.0


@dataclass(frozen=True, slots=True)
class Ended:
    """What the history has of a task. `run`: whose outcome counted, as its result says; `writes`: by whom it wrote."""

    status: str
    run: str | None
    writes: tuple[str, ...] = ()
    error: str | None = None


@dataclass(slots=True)
class Run:
    """One run of a handler, as it told itself. Without an end it was killed, or is under way: it ended as it began."""

    task: str
    key: str | None
    attempt: int
    name: str
    pid: int
    began: float
    ended: float
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures of a round. What may not be is in `wrong`; `paused` overlaps are those of a process that was frozen.

    `wiped`: plain Celery messages that were in a Redis which was emptied. `unknown`: calls that ended in an error; they
    may have come to a task, and then it has to finish as every other.
    """

    accepted: int
    finished: int
    unknown: int
    lost: int
    failed: int
    ghosts: int
    again: int
    overlapped: int
    keys_overlapped: int
    paused: int
    stale: int
    wiped: int
    examples: tuple[str, ...] = ()

    @property
    def wrong(self) -> dict[str, int]:
        found = {
            "lost": self.lost, "wrongly failed": self.failed, "rolled back and run": self.ghosts,
            "overlapped": self.overlapped, "keys overlapped": self.keys_overlapped, "stale accepted": self.stale,
        }  # fmt: skip
        return {what: n for what, n in found.items() if n}


def judge(
    lines: Sequence[Line], ended: Mapping[str, Ended], left: Iterable[str] = (), *, wipes: bool = False
) -> Verdict:
    """`ended`: of every task of the round that is over. `left`: tasks that are unfinished though the load has ended.

    `wipes`: Redis lost its memory meanwhile, and plain Celery's messages with it.
    """
    runs = runs_of(lines)
    by_task: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_task[run.task].append(run)
    accepted = {line["id"]: line for line in lines if line["what"] == ACCEPTED}
    told: list[str] = []

    def named(what: str, ids: Iterable[str]) -> int:
        found = sorted(ids)
        told.extend(f"{what}: {one}{_why(ended.get(one))}" for one in found[:3])
        return len(found)

    expected = {i: line.get("expects", "completed") for i, line in accepted.items()}
    finished = {i for i in accepted if i in ended and ended[i].status == expected[i]}
    merged = {i for i, line in accepted.items() if i not in ended and _is_merged(line, runs)}
    gone = accepted.keys() - ended.keys() - merged
    wiped = {i for i in gone if wipes and accepted[i].get("way") == "plain" and i not in by_task}
    wrongly = {i for i, end in ended.items() if end.status != expected.get(i, "completed")}
    pauses = _pauses(lines)
    same = _overlaps(runs, lambda run: run.task, pauses)
    keys = _overlaps([run for run in runs if run.key is not None], lambda run: run.key, pauses, other_task=True)
    rolled_back = {line["id"] for line in lines if line["what"] == ROLLED_BACK}
    return Verdict(
        accepted=len(accepted),
        finished=len(finished | merged),
        unknown=sum(line["what"] == REFUSED for line in lines),
        lost=named("lost", (gone - wiped) | set(left)),
        failed=named("wrongly failed", wrongly),
        ghosts=named("rolled back and run", rolled_back & (by_task.keys() | ended.keys())),
        again=sum(n - 1 for n in Counter((run.task, run.attempt) for run in runs).values()),
        overlapped=named("overlapped", same.truly),
        keys_overlapped=named("key overlapped", keys.truly),
        paused=len(same.paused) + len(keys.paused),
        stale=named("stale accepted", _stale(ended, by_task, pauses)),
        wiped=len(wiped),
        examples=tuple(told),
    )


def _why(ended: Ended | None) -> str:
    return f" ({ended.error[:300]})" if ended is not None and ended.error else ""


def _is_merged(accepted: Line, runs: Iterable[Run]) -> bool:
    """A call that met its unique key in an open transaction: it came to the task that has the key, if there was one."""
    is_open = accepted.get("key") is not None and accepted.get("is_new") is None
    return is_open and any(run.key == accepted["key"] and run.ended >= accepted["at"] for run in runs)


def runs_of(lines: Iterable[Line]) -> list[Run]:
    found: dict[str, Run] = {}
    over: dict[str, float] = {}
    for line in lines:
        if line["what"] == BEGIN:
            at, key = line["at"], line.get("key")
            found[line["run"]] = Run(line["id"], key, line["attempt"], line["run"], line["pid"], at, at)
        elif line["what"] in (END, BROKE):
            over[line["run"]] = line["at"]
    for name, at in over.items():
        if name in found:
            found[name].ended, found[name].is_over = at, True
    return sorted(found.values(), key=lambda run: run.began)


@dataclass(frozen=True, slots=True)
class _Overlaps:
    """Names of what overlapped: truly, and with a process that was frozen, which cannot know what goes on."""

    truly: list[str]
    paused: list[str]


@dataclass(frozen=True, slots=True)
class Pause:
    """A process that was frozen, and from when until when it may not know what goes on."""

    pid: int
    since: float
    until: float


def _pauses(lines: Iterable[Line]) -> list[Pause]:
    """One for each time that a process was frozen; until the end of the round where nobody thawed it."""
    found: list[Pause] = []
    since: dict[int, float] = {}
    for line in lines:
        if line["what"] == PAUSED:
            since[line["frozen"]] = line["at"]
        elif line["what"] == THAWED:
            found.append(Pause(line["frozen"], since.pop(line["frozen"]), line["at"] + STOPPED_WITHIN))
    return [*found, *(Pause(pid, at, math.inf) for pid, at in since.items())]


def _overlaps(
    runs: Iterable[Run], by: Callable[[Run], str | None], pauses: Sequence[Pause], *, other_task: bool = False
) -> _Overlaps:
    """Runs that began before an earlier one of the same name had ended; `other_task`: only of different tasks.

    Either may be of a process that was frozen: in its handler, or between its start in SQL and its handler.
    """
    found = _Overlaps([], [])
    longest: dict[str, Run] = {}
    for run in runs:
        name = by(run) or ""
        before = longest.get(name)
        if before is None or run.ended > before.ended:
            longest[name] = run
        if before is None or run.began >= before.ended or (other_task and run.task == before.task):
            continue
        frozen = _slept(before, run.began, pauses) or _woke(run, before.began, pauses)
        (found.paused if frozen else found.truly).append(name)
    return found


def _slept(run: Run, other_began: float, pauses: Sequence[Pause]) -> bool:
    """Whether its process was frozen while its handler ran, and another run began meanwhile."""
    return any(p.pid == run.pid and run.began < p.since < other_began <= p.until for p in pauses)


def _woke(run: Run, other_began: float, pauses: Sequence[Pause]) -> bool:
    """Whether its process was frozen before its handler began, which it did as it woke, and another run meanwhile."""
    return any(p.pid == run.pid and p.since < other_began < run.began <= p.until for p in pauses)


def _stale(ended: Mapping[str, Ended], by_task: Mapping[str, Sequence[Run]], pauses: Sequence[Pause]) -> set[str]:
    """Tasks whose outcome is not that of the run which began last, or which wrote otherwise than once, with it.

    A process that was frozen between its start in SQL and its handler begins as it wakes, though others ran the task
    meanwhile: that run counts only if its outcome does.
    """
    found = set()
    for task, end in ended.items():
        runs = by_task.get(task)
        if end.status != "completed" or not runs or end.run is None:
            continue
        began = next((run.began for run in runs if run.name == end.run), -math.inf)
        last = [run.name for run in runs if not _woke(run, began, pauses)][-1]
        if end.run != last or any(run != end.run for run in end.writes) or len(end.writes) > 1:
            found.add(task)
    return found


def recovery(ends: Sequence[float], since: float, rate: float, *, window: float = 2.0, share: float = 0.9) -> float:
    """Seconds from `since` until as much ends within a window as that share of `rate` a second; infinite if never."""
    times = sorted(at for at in ends if at >= since)
    wanted = max(1, int(rate * window * share))
    for n in range(wanted - 1, len(times)):
        first = times[n - wanted + 1]
        if times[n] - first <= window:
            return max(0.0, times[n] - since - window)
    return float("inf")


def rate(ends: Iterable[float], since: float, until: float) -> float:
    """How many a second."""
    return sum(since <= at < until for at in ends) / max(until - since, 1e-9)


def missing(instants: Iterable[datetime], every: float) -> int:
    """How many instants of a schedule nobody ran, between the first and the last that somebody did."""
    return sum(round((after - before).total_seconds() / every) - 1 for before, after in pairwise(sorted(set(instants))))
