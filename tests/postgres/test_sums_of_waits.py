"""However much of a round of work meets somebody's lock, the round itself is not long: waits do not add up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from celeriac import Celeriac
from celeriac.cli.status import overview
from celeriac.doctor import examine
from celeriac.schedules import enqueuing
from celeriac.schedules.beat import Scheduler
from celeriac.store.patience import HURRIED, RECURRING, patient
from celeriac.worker.lifeline import PATIENCE, Lifeline
from tests.postgres.test_every_lock import BUSY, TABLES, locked
from tests.processes import Rows, until

#: So many schedules, and so many roles, would wait ten seconds and more one after the other.
MANY = 30

#: Who holds what the engine needs is told within this (seconds), nothing else being known.
NAMED_WITHIN = 5.0


@pytest.fixture
def work(app: Celeriac) -> Celeriac:
    @app.task(role="work", shared=False)
    def work(n: int = 0) -> None: ...

    app.schedules = [enqueuing(f"n {n}", "@every 1h", "work", {"n": n}) for n in range(MANY)]
    app.register_roles()
    return app


@pytest.fixture
def beat(work: Celeriac, rows: Rows) -> Iterator[Scheduler]:
    """All its schedules are due."""
    beat = Scheduler(work)
    beat.tick()
    until(lambda: not beat.acts.under_way(), "the first sweeps to end")
    rows(
        "UPDATE celeriac.scheduled_jobs SET next_run_at = now() WHERE kind = 'task' OR target IN ('rescue', 'history')"
    )
    yield beat
    beat.close()


def took(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


@pytest.mark.parametrize("table", ["tasks", "history"])
def test_a_tick_is_not_long_however_many_schedules_meet_a_lock(
    beat: Scheduler, rows: Rows, database_url: str, table: str
) -> None:
    with locked(database_url, f"celeriac.{table}"):
        assert took(beat.tick) < 2 * RECURRING + MANY * HURRIED + BUSY
        assert rows("SELECT DISTINCT last_tick_at > now() - interval '5 s' FROM celeriac.beats") == [(True,)]
    beat.timetable._rests.clear()
    beat.tick()
    assert rows("SELECT count(*) FROM tasks WHERE role = 'work'") == [(MANY,)]


@pytest.mark.parametrize("table", ["beats", "repairs"])
def test_a_beat_that_cannot_report_goes_on_and_takes_nobodys_tasks(
    beat: Scheduler, rows: Rows, database_url: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap in which no lease could be renewed may not have been noted."""
    began: list[str] = []
    monkeypatch.setattr(beat.acts, "start", lambda ticked: began.append(ticked.job.target))
    beat.reported = beat.report_at = float("-inf")
    with locked(database_url, f"celeriac.{table}"):
        beat.tick()
    assert rows("SELECT count(*) FROM tasks WHERE role = 'work'") == [(MANY,)]
    assert began == ["history"]


def test_a_lifelines_look_is_not_long_however_many_roles_meet_a_lock(
    work: Celeriac, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(MANY):

        @work.task(name=f"role {n}", role=f"role {n}", shared=False)
        def one() -> None: ...

        one.delay()
    work.register_roles()
    monkeypatch.setattr(Lifeline, "queues", lambda _: {f"role {n}" for n in range(MANY)})
    monkeypatch.setattr(Lifeline, "processes", lambda _: [])
    lifeline = Lifeline(work, SimpleNamespace(pool=None, concurrency=1))
    with patient(PATIENCE), locked(database_url, "celeriac.tickets", "celeriac.workers"):
        assert took(lifeline.look) < 8 * PATIENCE + MANY * HURRIED + BUSY
    lifeline.database.dispose()


@pytest.mark.parametrize("what", ["all", "tickets"])
def test_who_holds_it_is_named_at_once_though_nothing_else_is_known(
    work: Celeriac, rows: Rows, database_url: str, what: str
) -> None:
    tables = [name for (name,) in rows(TABLES) if what in ("all", name.removeprefix("celeriac."))]

    def told() -> list[str]:
        return [one.subject for one in overview(work)["wrong"] if one.name == "locked_table"]

    with locked(database_url, *tables):
        (subject,) = until(told, "it to be open for as long as makes a lock one")
        for ask in (told, lambda: examine(work)):
            assert took(ask) < NAMED_WITHIN
        assert examine(work)[0].says.startswith(f"{subject}: ")
