"""What is of an open transaction, and what waits for its commit: on event loops, without autocommit, at `get()`."""

import io
import json
import tempfile

from asgiref.sync import async_to_sync
from celery import current_app, group
from celery.exceptions import TimeoutError as CeleryTimeout
from django.core.management import call_command
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase
from shop.models import Order
from shop.tasks import charge

from celeriac import testing
from celeriac.contrib.django.models import Task
from celeriac.errors import CeleriacError, IllegalMove


class Rolled(Exception):
    """Rolls a transaction back."""


def elsewhere() -> list[int]:
    """The numbers of the unfinished tasks that another connection sees."""
    with current_app.database.statement() as connection:
        rows = connection.exec_driver_sql("SELECT args ->> 0 FROM celeriac.tasks WHERE cancel_requested_at IS NULL")
        return sorted(map(int, rows.scalars()))


def awaited(call):
    """What the coroutine of this call comes to, as a view that is no coroutine asks for it."""

    async def ask():
        return await call()

    return async_to_sync(ask)()


class Emptied(TransactionTestCase):
    databases = {"default", "other"}

    def setUp(self):
        with connections["default"].cursor() as cursor:
            cursor.execute("DELETE FROM celeriac.worker_tasks")


class OnLoops(Emptied):
    def roll_back(self, call):
        with self.assertRaises(Rolled), transaction.atomic():
            Order.objects.create(number=1)
            awaited(call)
            raise Rolled

    def test_an_awaited_call_is_of_the_transaction_around_its_loop(self):
        for call in (
            lambda: charge.adelay(1),
            lambda: charge.aapply_async((1,), countdown=60),
            lambda: charge.abulk([(1,), (2,)]),
            lambda: charge.using(lock_key="till").adelay(1),
        ):
            self.roll_back(call)
            self.assertEqual(elsewhere(), [])
        with transaction.atomic():
            awaited(lambda: charge.adelay(3))
            self.assertEqual(elsewhere(), [])
        self.assertEqual(elsewhere(), [3])

    def test_an_awaited_call_outside_of_transactions_is_accepted_at_once(self):
        self.assertTrue(awaited(lambda: charge.adelay(1)).is_new)
        self.assertEqual(elsewhere(), [1])


class AsyncTests(TestCase):
    async def test_what_an_async_test_awaits_is_of_the_tests_transaction(self):
        await charge.adelay(1)
        self.assertEqual([task.task_args async for task in Task.objects.all()], [[1]])
        self.assertEqual(elsewhere(), [])


class Manual(Emptied):
    """Without autocommit."""

    def setUp(self):
        super().setUp()
        transaction.set_autocommit(False)
        self.addCleanup(transaction.set_autocommit, True)
        self.addCleanup(transaction.rollback)

    def test_a_call_waits_for_the_commit(self):
        charge.delay(1)
        self.assertEqual(elsewhere(), [])
        transaction.rollback()
        charge.delay(2)
        transaction.commit()
        self.assertEqual(elsewhere(), [2])

    def test_a_block_within_is_committed_with_the_rest(self):
        with transaction.atomic():
            charge.delay(1)
        self.assertEqual(elsewhere(), [])
        transaction.commit()
        self.assertEqual(elsewhere(), [1])


class Waiting(Emptied):
    def refuses(self, wait):
        with self.assertRaisesMessage(CeleriacError, "comes with the commit of the transaction that is open here"):
            wait()

    def test_a_result_is_not_awaited_within_the_transaction_that_brings_its_task(self):
        with transaction.atomic():
            result, members = charge.delay(1), group(charge.s(2), charge.s(3)).delay()
            self.refuses(lambda: result.get(timeout=20))
            self.refuses(lambda: members.get(timeout=20))
            self.refuses(lambda: awaited(lambda: result.aget(timeout=20)))
            with transaction.atomic():
                later = charge.delay_on_commit(4)
            self.refuses(lambda: later.get(timeout=20))

    def test_nor_within_that_of_another_database_after_which_it_is_enqueued(self):
        with transaction.atomic(using="other"):
            result = charge.delay(1)
            self.refuses(lambda: result.get(timeout=20))

    def test_a_committed_task_is_awaited_in_a_transaction(self):
        result = charge.delay(1)
        with transaction.atomic():
            charge.delay(2)
            with self.assertRaises(CeleryTimeout):
                result.get(timeout=0.1)
        self.assertEqual(testing.drain(), {"completed": 2})
        with transaction.atomic():
            self.assertEqual(result.get(timeout=20), 1)

    def test_what_the_transaction_enqueued_is_revoked_in_it(self):
        with transaction.atomic():
            charge.delay(1)
            charge.delay(2).revoke()
            self.assertEqual(elsewhere(), [])
        self.assertEqual(elsewhere(), [1])
        with self.assertRaises(Rolled), transaction.atomic():
            charge.delay(3).revoke()
            raise Rolled
        self.assertEqual(Task.objects.filter(status="cancelled").count(), 1)


class Dumped(Emptied):
    def test_no_dump_has_tasks_and_none_is_loaded(self):
        charge.delay(1)
        Order.objects.create(number=1)
        said = io.StringIO()
        call_command("dumpdata", stdout=said)
        models = {row["model"] for row in json.loads(said.getvalue())}
        self.assertIn("shop.order", models)
        self.assertNotIn("celeriac.task", models)
        fields = {field.attname: None for field in Task._meta.concrete_fields if field.attname != "id"}
        fields |= {"task_name": charge.name, "task_id": "loaded"}
        rows = [{"model": "celeriac.task", "pk": 99, "fields": fields}]
        rows += [{"model": "shop.order", "pk": 99, "fields": {"number": 99, "is_paid": False}}]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as dump:
            json.dump(rows, dump)
            dump.flush()
            call_command("loaddata", dump.name, verbosity=0)
        self.assertEqual((elsewhere(), Order.objects.filter(number=99).count()), ([1], 1))

    def test_queries_change_nothing(self):
        charge.delay(1)
        for change in (
            lambda: Task.objects.all().delete(),
            lambda: Task.objects.update(priority=1),
            lambda: Task.objects.bulk_create([Task(id=9)]),
            lambda: Task.objects.bulk_update([Task(id=9)], ["priority"]),
            lambda: Task.objects.create(id=9),
        ):
            with self.assertRaises(IllegalMove):
                change()
        self.assertEqual(elsewhere(), [1])
