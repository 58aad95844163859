"""Celeriac alone: what django-celery-beat has is imported once."""

import io
from datetime import UTC, datetime, timedelta

from celery import current_app
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import TransactionTestCase
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from celeriac.contrib.django.models import Task

LATER = datetime.now(UTC) + timedelta(days=3)


def periodic(name, task="shop.tasks.charge", **fields):
    return PeriodicTask.objects.create(name=name, task=task, **{"args": "[1]", **fields})


class Periodic(TransactionTestCase):
    maxDiff = None

    def setUp(self):
        self.execute("DELETE FROM celeriac.worker_tasks")
        self.execute("DELETE FROM celeriac.scheduled_jobs")
        self.nightly = CrontabSchedule.objects.create(
            minute="30", hour="3", day_of_week="mon-fri", timezone="Europe/Berlin"
        )
        self.often = IntervalSchedule.objects.create(every=10, period="minutes")

    def execute(self, statement):
        with connections["default"].cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def schedules(self):
        """By name."""
        rows = self.execute(
            "SELECT name, target, cron_expression, timezone, enabled, kwargs::text, options::text, priority "
            "FROM celeriac.scheduled_jobs"
        )
        return {name: rest for name, *rest in rows}

    def run_it(self, *arguments):
        said = io.StringIO()
        try:
            call_command("celeriac_import_periodic_tasks", *arguments, stdout=said)
        except CommandError as error:
            said.write(str(error))
        return said.getvalue()

    def test_each_kind_of_schedule_is_taken_once(self):
        periodic("nightly", crontab=self.nightly, priority=5, description="of each night")
        periodic("often", interval=self.often, args="[]", kwargs='{"number": 7}', expire_seconds=60, enabled=False)
        sun = SolarSchedule.objects.create(event="sunset", latitude=52.5, longitude=13.4)
        periodic("at sunset", solar=sun)
        expected = {
            "nightly": [
                "shop.tasks.charge", "30 3 * * 1-5", "Europe/Berlin", True, '{"number": 1}', "{}", 5
            ],
            "often": ["shop.tasks.charge", "@every 600s", "UTC", False, '{"number": 7}', '{"expires": 60}', None],
            "at sunset": ["shop.tasks.charge", "@solar sunset 52.5 13.4", "UTC", True, '{"number": 1}', "{}", None],
        }  # fmt: skip
        self.assertIn("nightly: taken: 30 3 * * 1-5 (Europe/Berlin)\n", self.run_it("--dry-run"))
        self.assertEqual(self.schedules(), {})
        self.assertIn("or each of them runs twice", self.run_it())
        self.assertEqual(self.schedules(), expected)
        self.execute("UPDATE celeriac.scheduled_jobs SET cron_expression = '@daily' WHERE name = 'often'")
        self.assertIn("often: left: a schedule of this name is there already", self.run_it())
        self.assertEqual(self.schedules()["often"][1], "@daily")

    def test_what_runs_once_is_a_task_that_is_planned_once(self):
        clocked = ClockedSchedule.objects.create(clocked_time=LATER)
        periodic("in three days", clocked=clocked, one_off=True)
        periodic("next night", crontab=self.nightly, one_off=True, expires=LATER)
        self.run_it("--dry-run")
        self.assertEqual(Task.objects.count(), 0)
        for _ in range(2):
            self.run_it()
        first, second = Task.objects.order_by("-scheduled_for")
        self.assertEqual((first.scheduled_for, first.task_kwargs), (LATER, {"number": 1}))
        self.assertEqual((second.scheduled_for.minute, second.waits_for), (30, "time"))
        self.assertEqual(self.schedules(), {})

    def test_what_there_is_nothing_to_do_for_is_left(self):
        periodic("old", interval=self.often, expires=datetime(2020, 1, 1, tzinfo=UTC))
        periodic("done", interval=self.often, one_off=True, total_run_count=1)
        periodic("celery.backend_cleanup", "celery.backend_cleanup", crontab=self.nightly, args="[]")
        self.assertEqual(self.run_it().count(": left: "), 3)
        self.assertEqual((self.schedules(), Task.objects.count()), ({}, 0))

    def test_what_cannot_be_taken_is_named_and_the_rest_is(self):
        periodic("unknown", "no.such.task", interval=self.often)
        periodic("begins later", interval=self.often, start_time=LATER)
        periodic("with headers", interval=self.often, headers='{"tenant": 1}')
        periodic("elsewhere", interval=self.often, queue="moon")
        periodic("wrong", interval=self.often, kwargs='{"moon": 1}')
        periodic("broken", interval=self.often, args="[1")
        periodic("right", interval=self.often)
        said = self.run_it()
        for refused in (
            "unknown: refused: no role 'no.such.task'", "begins later: refused: start_time", "with headers: refused: ",
            "elsewhere: refused: options: its queue is 'celery'", "wrong: refused: shop.tasks", "broken: refused: ",
            "6 refused: begins later, broken, elsewhere, unknown, with headers, wrong",
        ):  # fmt: skip
            self.assertIn(refused, said)
        self.assertEqual([*self.schedules()], ["right"])
        self.assertEqual(current_app.conf.task_default_queue, "celery")
