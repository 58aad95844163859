"""Django's TestCase: what a test enqueues runs in the test's own transaction, by `run` and `drain`."""

from celery import chain, chord, current_app
from django.db import transaction
from django.test import TestCase
from shop.models import Order, Ran
from shop.tasks import charge, order, stubborn

from celeriac import testing
from celeriac.contrib.django.models import Task
from celeriac.errors import CeleriacError


def ran() -> list[int]:
    return list(Ran.objects.order_by("number").values_list("number", flat=True))


class Within(TestCase):
    def tearDown(self):
        with current_app.database.statement() as connection:
            self.assertEqual(connection.exec_driver_sql("SELECT count(*) FROM celeriac.worker_tasks").scalar_one(), 0)
            self.assertEqual(connection.exec_driver_sql("SELECT count(*) FROM shop_ran").scalar_one(), 0)

    def test_a_drain_runs_what_was_enqueued_and_sees_what_the_test_has_written(self):
        Order.objects.create(number=7)
        charge.delay(7)
        charge.apply_async((8,), countdown=60)
        testing.assert_enqueued("shop.tasks.charge", args=(7,), count=1)
        self.assertEqual(testing.drain(), {"completed": 1})
        self.assertTrue(Order.objects.get().is_paid)
        self.assertEqual(Task.objects.get(status="completed").task_args, [7])
        self.assertEqual(testing.drain(with_scheduled=True), {"completed": 1})
        self.assertEqual(ran(), [7, 8])

    def test_a_single_task_runs_and_what_it_enqueues_waits(self):
        done = testing.run(order, 1)
        self.assertEqual((done.status, done.result), ("completed", 1))
        self.assertEqual(ran(), [])
        self.assertEqual(testing.drain(), {"completed": 2})
        self.assertEqual(ran(), [1, 2])

    def test_what_a_failed_handler_enqueued_is_gone_but_for_that_of_its_block(self):
        done = testing.run(order, -5)
        self.assertEqual((done.status, done.error), ("failed", "ValueError: -5"))
        self.assertIsInstance(done.exception, ValueError)
        self.assertEqual(testing.drain(), {"completed": 1})
        self.assertEqual(ran(), [-4])

    def test_a_failure_is_raised_and_a_retry_waits(self):
        stubborn.delay(1)
        self.assertEqual(testing.drain(), {"retried": 1})
        with self.assertRaises(stubborn.MaxRetriesExceededError):
            testing.drain(with_retries=True)
        self.assertEqual(ran(), [1, 1])

    def test_a_task_with_a_lock_key_runs_by_itself(self):
        self.assertEqual(testing.run(charge.using(lock_key="till"), 1).result, 1)
        charge.using(lock_key="till").delay(2)
        with self.assertRaisesMessage(CeleriacError, "has its lock 'till'"):
            testing.run(charge.using(lock_key="till"), 3)

    def test_locks_and_workflows_go_on_to_their_ends(self):
        for number in (1, 2, 3):
            charge.using(lock_key="till").delay(number)
        chain(charge.si(4), charge.si(5)).delay()
        chord([charge.si(6), charge.si(7)], charge.si(8)).delay()
        self.assertEqual(testing.drain(), {"completed": 8})
        self.assertEqual(ran(), [1, 2, 3, 4, 5, 6, 7, 8])

    def test_calls_on_commit_are_made_where_callbacks_are_captured(self):
        with self.captureOnCommitCallbacks(execute=True):
            charge.delay_on_commit(1)
            transaction.on_commit(lambda: charge.delay(2))
        self.assertEqual(testing.drain(), {"completed": 2})

    def test_inline_they_run_as_the_block_is_committed(self):
        with testing.mode("inline", app=current_app._get_current_object()):
            with self.captureOnCommitCallbacks(execute=True):
                charge.delay(1)
                self.assertEqual(ran(), [])
            self.assertEqual(ran(), [1])

    def test_a_block_that_is_rolled_back_leaves_nothing_to_run(self):
        try:
            with transaction.atomic():
                charge.delay(1)
                raise ZeroDivisionError
        except ZeroDivisionError:
            self.assertEqual(testing.drain(), {})

    def test_what_an_open_block_enqueues_does_not_run_before_its_end(self):
        with transaction.atomic():
            charge.delay(1)
            self.assertEqual(testing.drain(), {})
        self.assertEqual(testing.drain(), {"completed": 1})
