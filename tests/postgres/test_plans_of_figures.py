"""What the figures cost follows what they count: neither other roles' tasks nor what finished long ago."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text

from celeriac import Celeriac, insights
from celeriac.api.app import Figures
from celeriac.insights.fleet.capacity import CAPACITY, HEARTBEATS, MOST
from celeriac.insights.fleet.metrics import MEASURE, PRIORITIES
from celeriac.store.plans import lookups
from tests.postgres.backlog import BASE, SHAPES, analyze, analyze_while_idle, forget, past, run
from tests.postgres.plans import explain

Clone = Callable[[], str]

WORKER = "INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency) VALUES ('w', 'h', 1, 3)"

ASIDE = {
    "another role's": SHAPES["another role's"],
    "of long ago": [
        past("""'old-' || i, 'work', '', 'completed',
            now() - interval '1 hour 1 minute' - i * interval '1 millisecond' FROM generate_series(1, :n)"""),
    ],
}


def pages(connection: Connection) -> dict[str, int]:
    with lookups(connection):
        heartbeats = explain(connection, HEARTBEATS, worker_id=None).pages
    return {
        "heartbeats, as the API asks": heartbeats,
        "capacity": explain(connection, CAPACITY, role=None, most=MOST).pages,
        "capacity of one": explain(connection, CAPACITY, role="work", most=MOST).pages,
        "metrics": explain(connection, MEASURE, role=None).pages,
        "priorities": explain(connection, PRIORITIES, role=None).pages,
        "heartbeats": explain(connection, HEARTBEATS, worker_id=None).pages,
    }


def measured(url: str, aside: str, n: int) -> dict[str, int]:
    """Pages by figure and by what the planner believes."""
    engine = create_engine(url)
    with engine.connect() as connection:
        analyze_while_idle(connection)
        connection.execute(text(WORKER))
        run(connection, BASE)
        run(connection, ASIDE[aside], n)
        idle = pages(connection)
        forget(connection)
        nothing = pages(connection)
        analyze(connection)
        believed = {"it is idle": idle, "nothing": nothing, "the truth": pages(connection)}
    engine.dispose()
    return {f"{name}, who believes {belief}": n for belief, seen in believed.items() for name, n in seen.items()}


@pytest.mark.parametrize("aside", ASIDE)
def test_no_figure_reads_what_it_does_not_count(clone: Clone, aside: str) -> None:
    small, large = (measured(clone(), aside, n) for n in (1_000, 50_000))
    assert {name: (small[name], n) for name, n in large.items() if n > small[name] + 200} == {}


def test_the_api_asks_for_figures_as_they_are_explained_and_for_counts_by_lookups(
    app: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins = []

    def note(connection: Connection, *_: Any) -> list[Any]:
        joins.append(connection.exec_driver_sql("SHOW enable_hashjoin").scalar_one())
        return []

    monkeypatch.setattr(insights, "capacity", note)
    monkeypatch.setattr(insights, "counts", note)
    figures = Figures(app)
    asyncio.run(figures.capacity(None))
    asyncio.run(figures.capacity("work"))
    asyncio.run(figures.counts(None))
    assert joins == ["on", "on", "off"]
