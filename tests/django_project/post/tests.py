"""Django's tasks framework on rows: what Django's own tests ask of a backend, and what rows add."""

from datetime import UTC, datetime, timedelta
from unittest import mock

from asgiref.sync import async_to_sync
from celery import current_app
from celery.exceptions import TaskRevokedError
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone
from post import tasks

from celeriac import testing
from celeriac.contrib.django import Backend, framework
from celeriac.contrib.django.framework import InvalidTask, TaskResultStatus, signals
from celeriac.contrib.django.models import Task
from celeriac.errors import HandlerEnded

READY, RUNNING, SUCCESSFUL, FAILED = (
    TaskResultStatus.READY, TaskResultStatus.RUNNING, TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED,
)  # fmt: skip
LOGGER = framework.PACKAGE


class Rolled(Exception):
    """Rolls a transaction back."""


def drain():
    """Whatever is due runs, by the code that a worker runs."""
    return testing.drain(raising=False, app=current_app._get_current_object())


class Enqueue(TestCase):
    def test_the_backend_is_the_one_that_is_named(self):
        backend = framework.Task.get_backend(tasks.nothing)
        self.assertIsInstance(backend, Backend)
        self.assertEqual((backend.alias, backend.options), ("default", {}))
        for supports in ("defer", "async_task", "get_result", "priority"):
            self.assertIs(getattr(backend, f"supports_{supports}"), True)

    def test_a_call_is_ready(self):
        for task in (tasks.nothing, tasks.nothing_async):
            with self.subTest(task):
                self.expect_ready(task, task.enqueue(1, two=3))

    def test_a_call_on_an_event_loop_is_ready(self):
        for task in (tasks.nothing, tasks.nothing_async):
            with self.subTest(task):
                self.expect_ready(task, async_to_sync(task.aenqueue)(1, two=3))

    def expect_ready(self, task, result):
        self.assertEqual((result.status, result.is_finished, result.attempts), (READY, False, 0))
        self.assertEqual((result.started_at, result.last_attempted_at, result.finished_at), (None, None, None))
        self.assertLess(abs(timezone.now() - result.enqueued_at), timedelta(minutes=1))
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            result.return_value  # noqa: B018
        self.assertEqual((result.task, result.args, result.kwargs), (task, [1], {"two": 3}))
        self.assertEqual(task.get_result(result.id), result)
        self.assertEqual(async_to_sync(task.aget_result)(result.id), result)

    def test_a_call_is_a_row_of_the_functions_role(self):
        tasks.letter.enqueue("Ada", copies=2)
        row = Task.objects.get()
        self.assertEqual((row.task_name, row.priority, row.status), ("post.tasks.letter", 7, "pending"))
        self.assertEqual((row.task_args, row.task_kwargs), (["Ada"], {"copies": 2}))
        self.assertEqual(current_app.tasks["post.tasks.letter"].role.queue, "letters")

    def test_a_call_has_a_priority_a_queue_and_a_time_of_its_own(self):
        at = timezone.now() + timedelta(hours=1)
        result = tasks.letter.using(priority=-5, queue_name="default", run_after=at).enqueue("Ada")
        row = Task.objects.get()
        self.assertEqual((row.priority, row.scheduled_for, row.waits_for), (-5, at, "time"))
        self.assertEqual((row.task_name, row.queue), ("post.tasks.letter", "default"))
        self.assertEqual(tasks.letter.get_result(result.id), result)
        self.assertEqual(result.task.run_after, at)
        with connections["default"].cursor() as cursor:
            cursor.execute("UPDATE celeriac.worker_tasks SET priority = 5000")
        self.assertEqual(tasks.letter.get_result(result.id).task.priority, 100)

    @override_settings(USE_TZ=False, TIME_ZONE="America/New_York")
    def test_times_are_naive_where_those_of_the_project_are(self):
        """In and out of the transaction, and as a task that runs is told."""
        at = timezone.now() - timedelta(seconds=1)
        told = []
        signals.task_finished.connect(receiver := lambda task_result, **_: told.append(task_result))
        self.addCleanup(signals.task_finished.disconnect, receiver)
        sent = tasks.answer.using(run_after=at).enqueue()
        self.assertEqual(tasks.answer.get_result(sent.id).task.run_after, at)
        self.assertEqual(drain(), {"completed": 1})
        for result in (tasks.answer.get_result(sent.id), *told):
            times = [result.enqueued_at, result.started_at, result.finished_at]
            self.assertEqual([time.tzinfo for time in times], [None] * 3)
            self.assertLess(max(times) - min(times), timedelta(minutes=1))
            self.assertLess(abs(timezone.now() - times[0]), timedelta(minutes=1))

    @override_settings(USE_TZ=False)
    def test_a_time_without_a_zone_is_one_of_djangos_zone(self):
        tasks.nothing.using(run_after=datetime(2100, 1, 1, 12)).enqueue()
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM scheduled_for) FROM celeriac.worker_tasks")
            self.assertEqual(cursor.fetchone()[0], timezone.make_aware(datetime(2100, 1, 1, 12)).timestamp())

    def test_what_is_no_json_is_refused(self):
        for wrong in (object(), {1}, datetime.now(UTC)):
            with self.subTest(wrong), self.assertRaises(TypeError):
                tasks.nothing.enqueue(wrong)
        self.assertEqual(tasks.nothing.enqueue((1, 2)).args, [[1, 2]])

    def test_a_queue_that_no_worker_knows_is_refused(self):
        with self.assertRaisesMessage(InvalidTask, "Queue 'moon' is not valid for backend"):
            tasks.nothing.using(queue_name="moon").enqueue()
        everything = {"default": {"BACKEND": "celeriac.contrib.django.Backend", "QUEUES": []}}
        with (
            override_settings(TASKS=everything),
            self.assertRaisesMessage(InvalidTask, "name it in TASKS['default']['QUEUES']"),
        ):
            tasks.nothing.using(queue_name="moon").enqueue()

    def test_other_wrong_tasks_are_refused(self):
        for wrong in ({"priority": 101}, {"priority": -101}, {"priority": 1.5}, {"run_after": datetime(2100, 1, 1)}):
            with self.subTest(wrong), self.assertRaises(InvalidTask):
                tasks.nothing.using(**wrong)

    def test_a_result_that_is_not_there(self):
        for missing in ("123", 123, "01a226f1-3408-758f-ae41-d4b0bc68a0e7", "\x00"):
            with self.subTest(missing), self.assertRaises(framework.TaskResultDoesNotExist):
                tasks.nothing.get_backend().get_result(missing)

    def test_a_result_of_another_task(self):
        result = tasks.nothing.enqueue()
        with self.assertRaises(framework.TaskResultMismatch):
            tasks.answer.get_result(result.id)
        with self.assertRaises(framework.TaskResultDoesNotExist):
            tasks.nothing.get_backend().get_result(current_app.tasks["shop.tasks.charge"].delay(1).id)

    def test_a_call_is_logged_and_signalled(self):
        heard = mock.Mock()
        signals.task_enqueued.connect(heard)
        self.addCleanup(signals.task_enqueued.disconnect, heard)
        with self.assertLogs(LOGGER, "DEBUG") as logged:
            result = tasks.nothing.enqueue()
        self.assertEqual(len(logged.output), 1)
        self.assertIn(f"id={result.id} path=post.tasks.nothing enqueued", logged.output[0])
        self.assertEqual((heard.call_args.kwargs["sender"], heard.call_args.kwargs["task_result"]), (Backend, result))

    def test_djangos_checks_find_no_error(self):
        call_command("check")

    def test_an_app_of_stock_celerys_is_named_by_djangos_check(self):
        with (
            mock.patch("celeriac.contrib.django.backend.celeriac_app", return_value=None),
            self.assertRaisesMessage(SystemCheckError, "TASKS['default'] is Celeriac's, and the project's app is not"),
        ):
            call_command("check")


class Run(TransactionTestCase):
    def setUp(self):
        with connections["default"].cursor() as cursor:
            cursor.execute("DELETE FROM celeriac.worker_tasks")
        waits = testing.mode("manual", app=current_app._get_current_object())
        waits.__enter__()
        self.addCleanup(waits.__exit__, None, None, None)

    def expect_times(self, result):
        self.assertIs(result.is_finished, True)
        self.assertEqual(result.started_at, result.last_attempted_at)
        self.assertLess(result.enqueued_at - timedelta(seconds=1), result.started_at)
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual((result.attempts, len(result.worker_ids)), (1, 1))

    def test_a_result(self):
        for task in (tasks.answer, tasks.answer_async):
            with self.subTest(task):
                result = task.enqueue()
                self.assertEqual(drain(), {"completed": 1})
                self.assertEqual((result.status, result.attempts), (READY, 0))
                result.refresh()
                self.assertEqual((result.status, result.return_value, result.errors), (SUCCESSFUL, 42, []))
                self.expect_times(result)
                self.assertEqual(task.get_result(result.id), result)

    def test_a_result_is_refreshed_on_an_event_loop(self):
        result = async_to_sync(tasks.answer.aenqueue)()
        drain()
        async_to_sync(result.arefresh)()
        self.assertEqual(result.return_value, 42)

    def test_an_error(self):
        for task in (tasks.value_error, tasks.nested_error):
            with self.subTest(task):
                result = task.enqueue()
                with self.assertLogs(LOGGER, "ERROR") as logged:
                    self.assertEqual(drain(), {"failed": 1})
                self.assertEqual(len(logged.output), 1)
                self.assertIn("it cannot be", logged.output[0])
                result.refresh()
                self.assertEqual(result.status, FAILED)
                with self.assertRaisesMessage(ValueError, "Task failed"):
                    result.return_value  # noqa: B018
                self.expect_times(result)
                self.assertIs(result.errors[0].exception_class, ValueError)
                self.assertTrue(result.errors[0].traceback.endswith("ValueError: it cannot be\n"))
                self.assertIn("post/tasks.py", result.errors[0].traceback)

    def test_a_handler_that_exits_has_failed(self):
        result = tasks.system_exit.enqueue()
        with self.assertLogs(LOGGER, "ERROR"):
            self.assertEqual(drain(), {"failed": 1})
        result.refresh()
        self.assertIs(result.errors[0].exception_class, HandlerEnded)
        self.assertIn("SystemExit: it ends", result.errors[0].traceback)

    def test_what_returns_no_json_has_failed(self):
        result = tasks.strange.enqueue()
        with self.assertLogs(LOGGER, "ERROR"):
            self.assertEqual(drain(), {"failed": 1})
        result.refresh()
        self.assertIs(result.errors[0].exception_class, TypeError)
        self.assertIn("Unsupported type", result.errors[0].traceback)

    def test_what_was_cancelled_has_failed(self):
        result = tasks.answer.enqueue()
        current_app.control.revoke(result.id)
        result.refresh()
        self.assertEqual((result.status, result.attempts), (FAILED, 0))
        self.assertIs(result.errors[0].exception_class, TaskRevokedError)

    def test_a_run_has_its_context(self):
        results = [tasks.whoami.enqueue(attempt=1), tasks.whoami_async.enqueue()]
        self.assertEqual(drain(), {"completed": 2})
        for result in results:
            result.refresh()
            self.assertEqual(result.return_value, result.id)

    def test_a_task_that_is_tried_again(self):
        """As OPTIONS may have it: the framework has no word for it."""
        result = tasks.second_time.enqueue()
        self.assertEqual(drain(), {"retried": 1})
        result.refresh()
        self.assertEqual((result.status, result.attempts, result.errors), (READY, 1, []))
        testing.drain(with_retries=True, app=current_app._get_current_object())
        result.refresh()
        self.assertEqual((result.status, result.attempts, result.return_value), (SUCCESSFUL, 2, 2))
        self.assertEqual(tasks.second_time.get_result(result.id), result)

    def test_runs_are_logged_and_signalled(self):
        heard = []
        for signal in (signals.task_started, signals.task_finished):

            def hear(sender, task_result, **_):
                heard.append((sender, task_result.id, task_result.status, task_result.attempts))

            signal.connect(hear, weak=False)
            self.addCleanup(signal.disconnect, hear)
        result = tasks.answer.enqueue()
        with self.assertLogs(LOGGER, "INFO") as logged:
            drain()
        for line, status in zip(logged.output, ("RUNNING", "SUCCESSFUL"), strict=True):
            self.assertIn(f"id={result.id} path=post.tasks.answer state={status}", line)
        self.assertEqual(heard, [(Backend, result.id, RUNNING, 1), (Backend, result.id, SUCCESSFUL, 1)])

    def test_a_task_that_runs_says_so(self):
        seen = []

        def look(sender, task_result, **_):
            seen.append(tasks.answer.get_result(task_result.id))

        signals.task_started.connect(look)
        self.addCleanup(signals.task_started.disconnect, look)
        tasks.answer.enqueue()
        drain()
        self.assertEqual((seen[0].status, seen[0].attempts, seen[0].is_finished), (RUNNING, 1, False))

    def test_a_call_is_of_the_transaction_around_it(self):
        with self.assertRaises(Rolled), transaction.atomic():
            result = tasks.answer.enqueue()
            self.assertEqual(tasks.answer.get_result(result.id), result)
            raise Rolled
        with self.assertRaises(framework.TaskResultDoesNotExist):
            result.refresh()
        with transaction.atomic():
            result = async_to_sync(tasks.answer.aenqueue)()
            self.assertEqual(drain(), {})
        self.assertEqual(drain(), {"completed": 1})

    def test_an_eager_call_has_its_result_at_once(self):
        with mock.patch.dict(current_app.conf.changes, {"task_always_eager": True}):
            done, failed = tasks.answer_async.enqueue(), tasks.value_error.enqueue()
            self.assertEqual(tasks.whoami.enqueue(1).status, SUCCESSFUL)
        self.assertEqual((done.status, done.return_value, done.is_finished), (SUCCESSFUL, 42, True))
        self.assertEqual((failed.status, failed.errors[0].exception_class), (FAILED, ValueError))
