"""A scheduler that is none of ours has the entries; a beat beside it runs passes and sweeps, and none of them twice."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import pytest
from celery.beat import Scheduler as CelerysScheduler
from celery.schedules import crontab, schedule

from celeriac import Celeriac
from celeriac.doctor.work import schedules
from celeriac.schedules import PassesAndSweeps, Scheduler, enqueuing
from celeriac.schedules.beat import Service
from tests.processes import ROOT, Rows

HOURLY = crontab(minute="0")


class Others(CelerysScheduler):
    """Another's, which ends at once."""

    def tick(self, *_: Any, **__: Any) -> float:
        raise SystemExit


@pytest.fixture
def app(app: Celeriac) -> Celeriac:
    @app.task(name="plus", prompt=False, shared=False)
    def plus(x: int = 0) -> int:
        return x

    app.conf.beat_schedule = {"hourly": {"task": "plus", "schedule": HOURLY}}
    app.schedules = [enqueuing("own", "0 * * * *", "plus")]
    return app


def installed(beat: Scheduler, rows: Rows) -> dict[str, bool]:
    """Which of the two entries are on, once it has ticked."""
    try:
        beat.tick()
        assert rows.one("SELECT count(*) FROM celeriac.scheduled_jobs WHERE kind = 'sweep' AND enabled") != 0
    finally:
        beat.close()
    return dict(rows("SELECT name, enabled FROM celeriac.scheduled_jobs WHERE kind = 'task' ORDER BY name"))


def test_passes_and_sweeps_alone_run_beside_another_scheduler(app: Celeriac, rows: Rows) -> None:
    assert installed(PassesAndSweeps(app), rows) == {"own": True}, "no other scheduler knows of it"
    assert installed(Scheduler(app), rows) == {"hourly": True, "own": True}
    assert installed(PassesAndSweeps(app), rows) == {"hourly": False, "own": True}


@pytest.mark.parametrize("named", ["celeriac.schedules:PassesAndSweeps", f"{__name__}:Others", Others, "not.there:Any"])
def test_one_that_the_configuration_names_has_celerys_entries(app: Celeriac, rows: Rows, named: Any) -> None:
    app.conf.beat_scheduler = named
    assert installed(Scheduler(app), rows) == {"own": True}


@pytest.mark.parametrize("named", [f"{__name__}:Others", Others])
def test_it_is_named_in_beats_log_however_it_was_said(
    app: Celeriac, caplog: pytest.LogCaptureFixture, named: Any
) -> None:
    with caplog.at_level(logging.WARNING, "celeriac"):
        Service(app, scheduler_cls=named).start()
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.endswith("`-S celeriac.schedules:PassesAndSweeps` beside it, for passes and sweeps alone")
    assert app.notes(scheduler=named) == [line], "in that of a worker with -B, too"
    assert app.notes(scheduler="celeriac.schedules:PassesAndSweeps") == []


def test_the_doctor_misses_no_entry_that_is_anothers(app: Celeriac, rows: Rows) -> None:
    def missed() -> list[str]:
        return [trouble.text for trouble in schedules(app).troubles if "alone" in trouble.text]

    installed(PassesAndSweeps(app), rows)
    assert missed() == []
    installed(Scheduler(app), rows)
    app.conf.beat_schedule = app.conf.beat_schedule | {"new": {"task": "plus", "schedule": HOURLY}}
    assert missed() == ["new stands in the beat config alone"]


# -- the packages themselves -------------------------------------------------------------------------------------------


def enqueued(rows: Rows) -> list[Any]:
    return [kwargs["x"] for (kwargs,) in rows("SELECT kwargs FROM worker_tasks ORDER BY id")]


def test_redbeat_enqueues_its_entries_once(app: Celeriac, rows: Rows, redis_url: str) -> None:
    redbeat = pytest.importorskip("redbeat")
    app.conf.update(
        redbeat_redis_url=redis_url, redbeat_lock_key=None,
        beat_schedule={"often": {"task": "plus", "schedule": 0.001, "kwargs": {"x": 1}}},
    )  # fmt: skip
    scheduler = redbeat.RedBeatScheduler(app=app)
    redbeat.RedBeatSchedulerEntry("own", "plus", schedule(0.001), kwargs={"x": 2}, app=app).save()
    assert installed(PassesAndSweeps(app), rows) == {"own": True}
    scheduler.tick()
    assert sorted(enqueued(rows)) == [1, 2]
    scheduler.close()


DJANGOS = """
import logging
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}, USE_TZ=True,
    INSTALLED_APPS=["django_celery_beat"],
)
django.setup()
from django.core.management import call_command

call_command("migrate", verbosity=0)
from celeriac import Celeriac, Settings
from celeriac.schedules import PassesAndSweeps
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from django_celery_beat.schedulers import DatabaseScheduler

logging.basicConfig(level=logging.WARNING)
app = Celeriac("djangos", fixups=[])

@app.task(name="plus", prompt=False)
def plus(x):
    return x

often, _ = IntervalSchedule.objects.get_or_create(every=1, period="microseconds")
PeriodicTask.objects.create(name="stored", task="plus", interval=often, kwargs='{"x": 2}', headers='{"a": 1}')
app.conf.beat_schedule = {"often": {"task": "plus", "schedule": 0.000001, "kwargs": {"x": 1}}}
theirs, ours = DatabaseScheduler(app=app), PassesAndSweeps(app)
ours.tick()
for _ in range(4):
    theirs.tick()
theirs.close()
ours.close()
theirs.apply_entry(theirs.schedule["celery.backend_cleanup"])
app.close()
"""


def test_django_celery_beat_enqueues_its_entries_once(
    app: Celeriac, rows: Rows, database_url: str, redis_url: str
) -> None:
    pytest.importorskip("django_celery_beat")
    servers = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    given = {**os.environ, **servers, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", DJANGOS], cwd=ROOT, env=given, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert set(enqueued(rows)) == {1, 2}
    assert done.stderr == "", "of `celery.backend_cleanup` nothing is left to do"
