"""Charts are lines that keep to their box, whatever the figures."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from celeriac.dashboard import charts
from celeriac.insights.fairness.received import ReceivedStep
from celeriac.insights.fleet.hours import Sample, TicketSample
from celeriac.insights.history.minutes import SPANS, Flow, Step

AT = datetime(2026, 11, 22, 12, tzinfo=UTC)

FIGURES = st.integers(0, 10**9)


def flow(*steps: tuple[int | None, int, int], seconds: int = 60) -> Flow:
    """Enqueued, completed, failed."""
    told = [
        Step(AT + timedelta(seconds=n * seconds), e, completed=c, failed=f) for n, (e, c, f) in enumerate(steps)
    ]  # fmt: skip
    return Flow(AT + timedelta(seconds=len(steps) * seconds), seconds, told, False)


@given(st.lists(st.tuples(st.none() | FIGURES, FIGURES, FIGURES), min_size=1, max_size=100))
def test_nothing_is_drawn_beside_the_box(steps: list[tuple[int | None, int, int]]) -> None:
    drawn = charts.chart(flow(*steps), UTC)
    lines = drawn.line + drawn.bars.completed + drawn.bars.failed
    for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", lines):
        assert charts.LEFT <= float(x) <= charts.WIDTH
        assert charts.TOP <= float(y) <= charts.HEIGHT - charts.BOTTOM
    assert all(float(y) >= charts.TOP for y in re.findall(r"V(-?[\d.]+)", lines))


def test_what_failed_stands_upon_what_completed_below_the_line_of_what_came() -> None:
    drawn = charts.chart(flow((20, 10, 5), (0, 0, 0)), UTC)
    assert drawn.levels == [(170.0, 0), (89.0, 10), (8.0, 20)]
    assert drawn.bars.completed == "M214.5 170V89.0"
    assert drawn.bars.failed == "M214.5 89.0V48.5"
    assert drawn.line == "M214.5 8.0L551.5 170.0"


def test_a_tick_rises_with_how_late_it_was_and_what_was_left_out_hangs_from_above() -> None:
    late = [0.0, 9.0, 1e9]
    strip = [{"late_seconds": seconds, "left_out": 0} for seconds in late]
    drawn = charts.ticks([*strip, {"late_seconds": 5.0, "left_out": 3}])
    assert drawn.completed == "M1 20V15.0M3 20V13.8M5 20V10.0"
    assert drawn.failed == "M7 0V8"


def test_a_workers_hour_is_lines_broken_where_it_was_silent_and_bands_where_it_backed_off() -> None:
    def at(minute: int, **told: Any) -> Sample:
        given = {"memory_percent": 50.0, "cpu_percent": None, "backoff_reason": None} | told
        return Sample(AT + timedelta(minutes=minute), **given)

    now = AT + timedelta(minutes=60, seconds=30)
    drawn = charts.hour(
        [at(0), at(1, memory_percent=400.0), at(5, cpu_percent=0.0), at(60, backoff_reason="x")], now, UTC
    )
    assert re.sub(r"[\d.]+", "", drawn.memory) == "M L M M "
    assert drawn.memory.startswith("M51.5 89.0L62.6 8.0M")
    assert re.fullmatch(r"M[\d.]+ 170\.0", drawn.cpu)
    assert re.fullmatch(r"M714\.\d 170V8", drawn.backs_off)
    assert [time for _, time in drawn.times] == ["12:00", "12:10", "12:20", "12:30", "12:40", "12:50"]
    assert charts.hour([at(-200)], now, UTC).memory == "", "what is older stands beside the box"


def test_an_axis_ends_with_a_round_number_whose_half_is_whole() -> None:
    assert [charts.nice(n) for n in (0, 1, 2, 3, 5, 10, 11, 45, 99, 2001)] == [2, 2, 2, 4, 10, 10, 20, 100, 100, 4000]


def test_times_below_the_axis_are_of_the_page_s_zone_and_days_where_it_spans_some() -> None:
    def labels(span: str) -> list[str]:
        seconds, step = SPANS[span]
        told = flow(*((0, 0, 0),) * (seconds // step), seconds=step)
        return [time for _, time in charts.chart(told, UTC).times]

    assert labels("1h") == ["12:00", "12:10", "12:20", "12:30", "12:40", "12:50"]
    assert labels("24h")[:2] == ["12:00", "16:00"]
    assert labels("7d")[:2] == ["22 Nov", "23 Nov"]


def test_the_summary_tells_where_more_came_than_ended() -> None:
    told = charts.summary(flow((9, 3, 1), (None, 8, 2), (1, 1, 0)))
    assert (told.enqueued, told.completed, told.failed, told.behind) == (10, 12, 3, 1)
    assert told.busiest.at == AT + timedelta(minutes=1)


def test_a_strip_is_as_high_as_its_highest_bar() -> None:
    drawn = charts.strip(flow((0, 1, 1), (0, 0, 0), (0, 1, 0)).steps)
    assert (drawn.completed, drawn.failed) == ("M1.0 20V10.0M5.0 20V10.0", "M1.0 10.0V0.0")


def test_what_an_account_received_stands_as_bars_with_marks_at_what_would_be_fair() -> None:
    steps = [ReceivedStep(AT + timedelta(minutes=5 * n), *one) for n, one in enumerate([(5, 2.5), (0, 10.0), (0, 0.0)])]
    drawn = charts.against_fair(steps)
    assert (drawn.bars.completed, drawn.marks) == ("M1 20V10.0", "M0 15.0h2M2 0.0h2")
    assert charts.against_fair([]).bars.completed == ""


def test_tickets_that_redis_lacks_stand_upon_those_it_has_and_what_it_did_not_tell_is_not_drawn() -> None:
    samples = [
        TicketSample("q", AT - timedelta(minutes=n), 4, in_redis) for n, in_redis in ((60, 3), (59, None), (0, 4))
    ]
    drawn = charts.of_minutes(samples, AT)
    assert (drawn.completed, drawn.failed) == ("M1.0 20V5.0M121.0 20V0.0", "M1.0 5.0V0.0")
