"""Beat: a due schedule runs once however many beats there are, and what fails does not stop the next."""

from __future__ import annotations

from sqlalchemy import text

from celeriac import Celeriac
from celeriac.beat import Schedule, Scheduler

DUE = text("UPDATE scheduled_jobs SET next_run_at = now() - :late * interval '1 second' WHERE name = :name")


def beat_of(app: Celeriac, *schedules: Schedule) -> Scheduler:
    app.schedules = [lambda _, s=s: s for s in schedules]
    beat = Scheduler(app)
    beat.jobs = {s.name: s for s in schedules}
    return beat


def make_due(app: Celeriac, name: str, late: float = 0.0) -> None:
    with app.database.statement() as connection:
        connection.execute(DUE, {"name": name, "late": late})


def test_of_two_beats_one_runs_what_is_due(app: Celeriac) -> None:
    ran: list[str] = []
    mine = beat_of(app, Schedule("shared", 60, lambda _: ran.append("mine") or 1))
    other = beat_of(app, Schedule("shared", 60, lambda _: ran.append("other") or 1))
    for turn in range(10):
        make_due(app, "shared")
        for beat in (mine, other) if turn % 2 else (other, mine):
            beat.tick()
    assert sorted(ran) == ["mine"] * 5 + ["other"] * 5


def test_a_schedule_that_throws_runs_again_and_stops_no_other(app: Celeriac) -> None:
    """The seed's cron was dead once its service had thrown: its in-progress flag stayed set."""
    ran: list[str] = []

    def broken(_: Celeriac) -> int:
        ran.append("broken")
        raise RuntimeError("on purpose")

    beat = beat_of(
        app, Schedule("a broken one", 60, broken), Schedule("b sound one", 60, lambda _: ran.append("sound") or 1)
    )
    for _ in range(2):
        make_due(app, "a broken one")
        make_due(app, "b sound one")
        assert beat.tick() >= 0
    assert ran == ["broken", "sound"] * 2


def test_missed_instants_are_made_up_for_once_and_the_grid_is_kept(app: Celeriac) -> None:
    ran: list[int] = []
    beat = beat_of(app, Schedule("missed", 10, lambda _: ran.append(1) or 1))
    make_due(app, "missed", late=35)
    beat.tick()
    beat.tick()
    assert len(ran) == 1
    with app.database.statement() as connection:
        ahead = connection.execute(
            text("SELECT extract(epoch FROM next_run_at - now()) FROM scheduled_jobs WHERE name = 'missed'")
        ).scalar_one()
    assert 4 <= float(ahead) <= 5


def test_a_tick_survives_a_database_that_is_gone(app: Celeriac, database_url: str) -> None:
    beat = beat_of(app, Schedule("any", 60, lambda _: 1))
    with app.database.statement() as connection:
        connection.execute(text("ALTER TABLE scheduled_jobs RENAME TO elsewhere"))
    assert beat.tick() == 1.0
    with app.database.statement() as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO scheduled_jobs"))
    assert beat.tick() <= 1.0
