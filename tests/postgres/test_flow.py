"""What happened over time is told of the minutes that are counted, in steps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from celeriac import insights
from celeriac.errors import BadValue
from celeriac.insights.history import minutes
from celeriac.insights.history.histogram import counts
from celeriac.store.connections import Database
from celeriac.store.plans import lookups
from tests.postgres.backlog import analyze, analyze_while_idle, run
from tests.postgres.explained import Clone
from tests.postgres.plans import explain
from tests.processes import Rows

UNTIL = "UPDATE minutes_until SET until = date_trunc('minute', now()) RETURNING until"


@pytest.fixture
def until(rows: Rows) -> datetime:
    at: datetime = rows.one(UNTIL)
    return at


def minute(rows: Rows, at: datetime, role: str = "work", **figures: Any) -> None:
    names = ", ".join(figures)
    rows(
        f"INSERT INTO minutes (role, minute, {names}) VALUES (:role, :at, {', '.join(f':{name}' for name in figures)})",
        role=role, at=at, **figures,
    )  # fmt: skip


def test_steps_are_all_there_and_have_what_happened_in_them(database: Database, rows: Rows, until: datetime) -> None:
    minute(rows, until - timedelta(minutes=2), enqueued=5, started=4, completed=3, failed=1, cancelled=2, retried=6)
    minute(rows, until - timedelta(minutes=2), "other", enqueued=1, completed=1)
    minute(rows, until - timedelta(minutes=31), enqueued=7)
    minute(rows, until, completed=100)
    minute(rows, until - timedelta(minutes=61), completed=1000)
    with database.reading() as connection:
        hour, day = insights.flow(connection), insights.flow(connection, "24h")
        of_other = insights.flow(connection, role="other")
    at = until - timedelta(minutes=2)
    assert (len(hour.steps), hour.step, hour.until, hour.is_partial) == (60, 60, until, False)
    assert hour.steps[-2] == insights.Step(at, 6, 4, 4, 1, 2, 6)
    assert [step.enqueued for step in hour.steps if step.enqueued] == [7, 6]
    assert of_other.steps[-2] == insights.Step(at, 1, 0, 1, 0, 0, 0)
    assert len(day.steps) == 96
    assert [(step.enqueued, step.completed) for step in day.steps if step.enqueued or step.completed] == [
        (0, 1000), (7, 0), (6, 4)
    ]  # fmt: skip


def test_what_is_not_known_of_a_role_is_left_out_and_said(database: Database, rows: Rows, until: datetime) -> None:
    minute(rows, until - timedelta(minutes=1), enqueued=2, completed=1)
    minute(rows, until - timedelta(minutes=1), "forgets", enqueued=None, started=None, completed=9)
    with database.reading() as connection:
        both, alone = insights.flow(connection), insights.flow(connection, role="forgets")
    assert (both.steps[-1].enqueued, both.steps[-1].completed, both.is_partial) == (2, 10, True)
    assert (alone.steps[-1].enqueued, alone.steps[-1].completed, alone.is_partial) == (None, 9, True)


def test_of_many_roles_the_newest_minutes_that_are_read_whole_are_told(
    database: Database, rows: Rows, until: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ago in (1, 2, 20, 400):
        for role in ("a", "b", "c"):
            minute(rows, until - timedelta(minutes=ago), role, completed=ago)
    monkeypatch.setattr(minutes, "MOST", 8)
    with database.reading() as connection:
        hour, day = insights.flow(connection), insights.flow(connection, "24h")
        of_one = insights.flow(connection, "24h", role="a")
    since = until - timedelta(minutes=19)
    assert (hour.is_cut, hour.steps[0].at, len(hour.steps)) == (True, since, 19)
    assert [step.completed for step in hour.steps if step.completed] == [6, 3]
    assert [(step.at, step.completed) for step in day.steps] == [(since, 0), (until - timedelta(minutes=15), 9)]
    assert (of_one.is_cut, len(of_one.steps), sum(step.completed for step in of_one.steps)) == (False, 96, 423)
    monkeypatch.setattr(minutes, "MOST", 9)
    with database.reading() as connection:
        assert not insights.flow(connection).is_cut


def test_lengths_are_those_of_the_last_hour_by_role(database: Database, rows: Rows, until: datetime) -> None:
    for ago, n in ((1, 1), (59, 3), (61, 1000)):
        at = until - timedelta(minutes=ago)
        minute(rows, at, waits=counts([(8, n)]), runs=counts([(0, n)]), completed_again=n, failed_again=2 * n)
    minute(rows, until - timedelta(minutes=1), "forgets", completed=2)
    with database.reading() as connection:
        found, again = insights.lengths(connection), insights.retries(connection)
        hours = insights.last_hour(connection)
    assert {role: (sum(of.waits), sum(of.runs)) for role, of in found.items()} == {"work": (4, 4)}
    assert (found["work"].wait(0.5), found["work"].run(1.0)) == (1.75, 0.005)
    assert (again.completed, again.failed) == (4, 8)
    assert [step.completed for step in hours["forgets"]] == [0] * 59 + [2]


def test_a_span_that_there_is_not_is_refused_with_those_there_are(database: Database) -> None:
    with pytest.raises(BadValue, match="span='2h': give one of 1h, 24h, 7d"), database.reading() as connection:
        insights.flow(connection, "2h")


MANY = """
INSERT INTO celeriac.minutes (role, minute, completed, waits, runs)
SELECT role, date_trunc('minute', now()) - i * interval '1 minute', 1, :told, :told
FROM generate_series(1, :n) i, (VALUES ('work'), ('other')) AS r (role)
"""

READ = (minutes.BEYOND, minutes.FLOW, minutes.FLOW_OF, minutes.ENDED, minutes.LENGTHS, minutes.AGAIN)


@pytest.mark.parametrize("believes", ["nothing", "the truth", "it is idle"])
def test_an_hour_costs_an_hour_however_many_days_are_kept(clone: Clone, believes: str) -> None:
    pages = []
    for n in (70, 10_000):
        engine = create_engine(clone())
        with engine.connect() as connection:
            if believes == "it is idle":
                analyze_while_idle(connection)
            run(connection, ["UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())"])
            connection.execute(text(MANY), {"n": n, "told": counts([])})
            if believes == "the truth":
                analyze(connection)
            given = {"step": 60, "role": "work", "most": minutes.MOST} | minutes._span(connection, 3_600)
            given["origin"] = given["since"]
            with lookups(connection):
                plans = [explain(connection, one, **{p: given[p] for p in one._bindparams}) for one in READ]
            pages.append([plan.pages for plan in plans])
        engine.dispose()
    small, large = pages
    assert [(s, g) for s, g in zip(small, large, strict=True) if g > s + 60] == []
