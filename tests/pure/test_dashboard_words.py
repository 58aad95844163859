"""How the dashboard puts durations, figures, states and searches."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from celeriac.dashboard import reading, templates, words
from celeriac.dashboard.health import health
from celeriac.insights import Count, RoleDepth
from celeriac.insights.fleet.one_role import Pace


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"), (0, "0 s"), (0.34, "340 ms"), (3.21, "3.2 s"), (45, "45 s"), (252, "4 m 12 s"), (3600, "1 h"),
        (90_061, "1 d 1 h"), (-5, "-5 s"), (3.0, "3 s"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, said: str) -> None:
    assert words.took(seconds) == said


def test_figures() -> None:
    figures = (None, 0, 12_404, 2.5, Count(5), Count(10_000, exact=False), Count(500, exact=False))
    assert [words.figure(n) for n in figures] == ["–", "0", "12\u202f404", "2.5", "5", "10\u202f000+", "500+"]
    assert words.share(262, 12_666) == "2.1 % (262 of 12\u202f666)"
    assert words.share(0, 0) == "–"


@pytest.mark.parametrize(
    ("percent", "word"),
    [(49, "ok"), (50, "warm"), (74, "warm"), (75, "high"), (89, "high"), (90, "critical"), (None, "unknown")],
)
def test_resources_in_the_words_of_the_workers_dashboard(percent: float | None, word: str) -> None:
    assert words.resource(percent) == word


def test_whether_sql_and_redis_are_in_step() -> None:
    assert [words.in_step(*given) for given in ((0, 0), (3, 3), (3, 1), (0, 2), (3, None))] == [
        "in step", "in step", "SQL ahead by 2: workers have just taken them, or they are lost",
        "Redis ahead by 2: kicks or leftovers, which do no harm", "unknown: Redis does not answer",
    ]  # fmt: skip


def test_what_was_read_a_moment_after_the_clock_has_just_been() -> None:
    now = datetime(2026, 7, 1, 12, tzinfo=UTC)
    context: Any = {"now": now, "page": SimpleNamespace(zone=UTC)}
    told = [str(templates.ago(context, now + timedelta(seconds=ahead))) for ahead in (1.0, 0.0, -2.5, 90.0)]
    assert [re.sub("<[^>]+>", "", text) for text in told] == ["0 s", "0 s", "2 s", "in 1 m 30 s"]


def test_what_takes_long_is_read_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now, read_at = [100.0], []

    def slowly() -> float:
        read_at.append(now[0])
        now[0] += 0.5
        return now[0]

    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])
    kept = reading.Kept()
    for _ in range(100):
        kept.get(slowly)
        now[0] += 0.25
    assert [after - before for before, after in pairwise(read_at)] == [6.25, *[6.0] * (len(read_at) - 2)]


def test_a_figure_of_an_axis_has_few_letters() -> None:
    given = (0, 1, 1000, 9999, 10_000, 50_000, 100_000, 2_500_000, 1e9, 52_017_365.6)
    assert [words.short(n) for n in given] == [
        "0", "1", "1\u202f000", "9\u202f999", "10k", "50k", "100k", "2.5M", "1G", "52M"
    ]  # fmt: skip


def test_times_to_go_back() -> None:
    assert [words.seconds(given) for given in ("90", "30s", "15m", "1h", "2d", "soon", "-1")] == [
        90, 30, 900, 3600, 172_800, None, None
    ]  # fmt: skip


def test_other_systems_names_of_a_state() -> None:
    assert words.other_names("pending") == "queued, waiting, delayed"
    assert words.other_names("completed") == "success"


def depth(**given: object) -> RoleDepth:
    none = dict.fromkeys(("pending", "ready", "later", "behind", "parked", "members"), Count(0))
    rest = {"claimed": 0, "running": 0, "stale": 0, "oldest_ready_seconds": None, "paused": False, "window": 60}
    return RoleDepth(**{"role": "crawl", "queue": "crawl", **none, **rest, **given})  # type: ignore[arg-type]


READY = {"pending": Count(1), "ready": Count(1)}


@pytest.mark.parametrize(
    ("given", "workers", "word"),
    [
        ({}, 1, "idle"),
        ({"paused": True, "pending": Count(1)}, 1, "paused"),
        (READY, 0, "no workers"),
        ({"running": 1}, 0, "no workers"),
        ({"pending": Count(1), "later": Count(1)}, 0, "waits"),
        ({"running": 1, "stale": 1}, 1, "stale"),
        (READY | {"oldest_ready_seconds": 91.0}, 1, "stuck"),
        (READY | {"oldest_ready_seconds": 89.0}, 1, "ok"),
        (READY | {"running": 1, "oldest_ready_seconds": 3601.0}, 1, "behind"),
        (READY | {"running": 1, "oldest_ready_seconds": 3599.0}, 1, "ok"),
        ({"claimed": 30, "running": 30}, 1, "full"),
        ({"running": 1}, 1, "ok"),
    ],
)
def test_how_a_role_is(given: dict[str, object], workers: int, word: str) -> None:
    assert health(depth(**given), {"active_workers": workers}, Pace(), 3600.0) == word


@pytest.mark.parametrize(
    ("pace", "given", "word"),
    [
        (Pace(every=300.0), {"oldest_ready_seconds": 899.0}, "ok"),
        (Pace(every=300.0), {"oldest_ready_seconds": 901.0}, "stuck"),
        (Pace(every=300.0, objective=60.0), {"oldest_ready_seconds": 61.0}, "behind"),
        (Pace(objective=7200.0), {"running": 1, "oldest_ready_seconds": 7199.0}, "ok"),
        (Pace(falls_behind=True), {"running": 1}, "behind"),
        (Pace(falls_behind=True), {"running": 1, "ready": Count(0), "pending": Count(0)}, "ok"),
    ],
)
def test_a_role_is_judged_by_its_own_interval_objective_and_flow(
    pace: Pace, given: dict[str, object], word: str
) -> None:
    assert health(depth(**READY | given), {"active_workers": 1}, pace, 3600.0) == word


def test_what_a_bulk_means_whatever_its_arguments_are() -> None:
    told = {"statuses": ["failed", "cancelled"], "older_than": 60.0, "arguments": {"ids": [1, 2], "note": "x"}}
    said = words.conditions(told)
    assert said == "state failed or cancelled, older 1 m, arg.ids [1, 2], arg.note x"


def test_what_rests_on_a_mean_has_three_digits() -> None:
    assert [words.mean(n) for n in (None, 17.25, 1_799.96, 52_017_365.6)] == [
        "–", "17.2", "1\u202f800", "52\u202f000\u202f000",
    ]  # fmt: skip


def test_at_least_so_many_are_marked() -> None:
    assert words.figure(Count(50_000, exact=False)) == "50\u202f000+"
