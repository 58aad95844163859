"""Charts: an insight's values over time, as paths of SVG. All lengths are in units of its view box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from math import ceil, floor, log10
from typing import Any, NamedTuple, Protocol

from celeriac.insights.fairness.received import ReceivedStep
from celeriac.insights.fleet.hours import MINUTES, Sample, TicketSample
from celeriac.insights.history.minutes import Flow, Step
from celeriac.store.states import STRIP as LAST_TICKS

#: Lengths of a chart; the axes' labels are in the margins.
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 190, 46, 20, 8

#: The height of a strip: a small chart without axes.
STRIP = 20

#: The part of a step's width that its bar takes.
FULL = 0.8

#: The width of the strip of a schedule's last ticks, which lie 2 apart.
TICKS = 2 * LAST_TICKS

#: The decimal logarithm of the lateness (seconds) beyond which ticks look alike.
LATEST = 4

#: Number of labels below a chart.
TIMES = 6


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve. `line`: the waiting tasks over time. `levels` and `times`: as in `Chart`, the times in hours."""

    line: str
    levels: list[tuple[float, float]]
    times: list[tuple[float, float]]


class Ended(Protocol):
    @property
    def completed(self) -> int: ...
    @property
    def failed(self) -> int: ...


class Failed(NamedTuple):
    failed: int
    completed: int = 0


@dataclass(frozen=True, slots=True)
class Bars:
    """Vertical lines of width `wide`: completed tasks, and above them failed ones."""

    completed: str
    failed: str
    wide: float


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `line`: enqueued tasks. `levels`: heights with their values; `times`: places with theirs."""

    bars: Bars
    line: str
    levels: list[tuple[float, int]]
    times: list[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of a flow. `behind`: in how many steps more tasks were enqueued than ended. `busiest`: the step with
    most ended tasks.
    """

    enqueued: int
    completed: int
    failed: int
    behind: int
    busiest: Step


def chart(flow: Flow, zone: tzinfo) -> Chart:
    """Draw completed and failed as bars, enqueued as a line, on axes that begin at 0."""
    top = nice(max((max(step.completed + step.failed, step.enqueued or 0) for step in flow.steps), default=0))
    wide, high = (WIDTH - LEFT) / len(flow.steps), HEIGHT - BOTTOM - TOP
    scale = high / top
    line = [
        f"{LEFT + (n + 0.5) * wide:.1f} {TOP + high - (step.enqueued or 0) * scale:.1f}"
        for n, step in enumerate(flow.steps)
    ]
    levels = [(round(TOP + high - level * scale, 1), level) for level in sorted({0, top // 2, top})]
    return Chart(
        _bars(flow.steps, LEFT, wide, TOP + high, scale), f"M{'L'.join(line)}", levels,
        list(_times(flow, wide, zone)),
    )  # fmt: skip


def strip(steps: Sequence[Ended]) -> Bars:
    """Draw a strip as high as its highest bar; the steps are 2 apart."""
    top = max((step.completed + step.failed for step in steps), default=0) or 1
    return _bars(steps, 0, 2, STRIP, STRIP / top)


@dataclass(frozen=True, slots=True)
class Against:
    """Bars, with a mark at each one's fair share."""

    bars: Bars
    marks: str


def against_fair(steps: Sequence[ReceivedStep]) -> Against:
    """Draw a strip of the slots that an account received, as high as its highest bar or mark."""
    top = max((max(step.slots, step.fair) for step in steps), default=0) or 1
    bars = "".join(f"M{2 * n + 1} {STRIP}V{STRIP * (1 - s.slots / top):.1f}" for n, s in enumerate(steps) if s.slots)
    marks = "".join(f"M{2 * n} {STRIP * (1 - s.fair / top):.1f}h2" for n, s in enumerate(steps) if s.fair)
    return Against(Bars(bars, "", 2 * FULL), marks)


def ticks(strip: Sequence[Mapping[str, Any]]) -> Bars:
    """Draw ticks 2 apart: from below those that made a task, higher if later; from above skipped instants."""
    made, left_out = "", ""
    for n, tick in enumerate(strip):
        x = 2 * n + 1
        late = log10(1 + max(0.0, tick["late_seconds"])) / LATEST
        left_out += f"M{x} 0V{STRIP * 0.4:g}" if tick["left_out"] else ""
        made += "" if tick["left_out"] else f"M{x} {STRIP}V{STRIP * (0.75 - 0.25 * min(1.0, late)):.1f}"
    return Bars(made, left_out, 2 * FULL)


@dataclass(frozen=True, slots=True)
class Hour:
    """A worker's memory and CPU in percent: lines, which break where it did not report, and bands of width `wide` where
    it backed off. `times`: places with their labels.
    """

    memory: str
    cpu: str
    backs_off: str
    wide: float
    times: list[tuple[float, str]]


def hour(samples: Sequence[Sample], now: datetime, zone: tzinfo) -> Hour:
    """Draw a worker's last hour, on an axis that ends at 100 %."""
    since = now.replace(second=0, microsecond=0) - timedelta(hours=1)
    wide, high = (WIDTH - LEFT) / 61, HEIGHT - BOTTOM - TOP
    places = [LEFT + ((one.minute - since).total_seconds() / 60 + 0.5) * wide for one in samples]
    points = [(x, one) for x, one in zip(places, samples, strict=True) if LEFT <= x <= WIDTH]
    bands = "".join(f"M{x:.1f} {TOP + high}V{TOP}" for x, one in points if one.backoff_reason)
    times = [
        (round(LEFT + n * wide, 1), _at(since + timedelta(minutes=n), zone, "%H:%M")) for n in range(0, 60, 10)
    ]  # fmt: skip
    return Hour(
        _line([(x, one.memory_percent) for x, one in points], 1.5 * wide),
        _line([(x, one.cpu_percent) for x, one in points], 1.5 * wide), bands, round(wide, 2), times,
    )  # fmt: skip


def _line(points: Sequence[tuple[float, float | None]], apart: float) -> str:
    drawn, before = "", float("-inf")
    for x, percent in points:
        if percent is not None:
            y = TOP + (HEIGHT - BOTTOM - TOP) * (1 - min(percent, 100.0) / 100)
            drawn += f"{'L' if x - before <= apart else 'M'}{x:.1f} {y:.1f}"
            before = x
    return drawn


def of_minutes(samples: Sequence[TicketSample], now: datetime) -> Bars:
    """Draw the last hour: tickets that were also in Redis, and above them those that were only in SQL. A minute without
    a sample, or without Redis, has no bar.
    """
    first = now.replace(second=0, microsecond=0) - timedelta(hours=1)
    by_minute = {
        int((one.minute - first).total_seconds() // 60): Failed(one.ahead, one.tickets - one.ahead)
        for one in samples if one.ahead is not None
    }  # fmt: skip
    return strip([by_minute.get(n, Failed(0)) for n in range(MINUTES)])


def trend(failed: Sequence[int]) -> Bars:
    """Draw a strip of failures only."""
    return strip([Failed(n) for n in failed])


def summary(flow: Flow) -> Summary:
    steps = flow.steps
    return Summary(
        sum(step.enqueued or 0 for step in steps), sum(step.completed for step in steps),
        sum(step.failed for step in steps),
        sum((step.enqueued or 0) > step.completed + step.failed for step in steps),
        max(steps, key=lambda step: step.completed + step.failed),
    )  # fmt: skip


def nice(n: int) -> int:
    """Return the next of 2, 4, 10, 20, 40, 100 …, each of which has a whole half."""
    power = 10 ** max(0, floor(log10(max(n, 1))))
    return next(top for top in (power, 2 * power, 4 * power, 10 * power) if top >= max(n, 2))


def _bars(steps: Sequence[Ended], left: float, wide: float, foot: float, scale: float) -> Bars:
    completed, failed = "", ""
    for n, step in enumerate(steps):
        x = f"{left + (n + 0.5) * wide:.1f}"
        upon = foot - step.completed * scale
        completed += f"M{x} {foot:g}V{upon:.1f}" if step.completed else ""
        failed += f"M{x} {upon:.1f}V{upon - step.failed * scale:.1f}" if step.failed else ""
    return Bars(completed, failed, round(wide * FULL, 2))


def _times(flow: Flow, wide: float, zone: tzinfo) -> Iterator[tuple[float, str]]:
    every = ceil(len(flow.steps) / TIMES)
    written = "%d %b" if len(flow.steps) * flow.step > 86_400 else "%H:%M"
    for n in range(0, len(flow.steps), every):
        yield round(LEFT + n * wide, 1), _at(flow.steps[n].at, zone, written)


def _at(at: datetime, zone: tzinfo, written: str) -> str:
    return at.astimezone(zone).strftime(written)


def curve(points: Sequence[tuple[float, float]]) -> Curve:
    """Draw a forecast: how many tasks wait, by hours from now."""
    last, most = points[-1][0] or 1.0, max(n for _, n in points) or 1.0
    height, width = HEIGHT - TOP - BOTTOM, WIDTH - LEFT
    places = [(LEFT + width * at / last, TOP + height * (1 - n / most)) for at, n in points]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    times = [(LEFT + width * n / TIMES, last * n / TIMES) for n in range(TIMES + 1)]
    return Curve(line, [(TOP, most), (TOP + height, 0.0)], times)
