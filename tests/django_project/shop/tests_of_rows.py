"""Celeriac alone: calls are rows, in the transaction that is open where they are made."""

import io
from unittest import mock

from celery import chain, current_app, group
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from shop.tasks import charge, refund

from celeriac.contrib.django.models import Task
from celeriac.errors import IllegalMove


class Rolled(Exception):
    """Rolls a transaction back."""


def elsewhere() -> int:
    """How many unfinished tasks another connection sees."""
    with current_app.database.statement() as connection:
        return connection.exec_driver_sql("SELECT count(*) FROM celeriac.tasks").scalar_one()


def numbers() -> list[int]:
    return sorted((task.task_args or [*task.task_kwargs.values()])[0] for task in Task.objects.all())


class Atomic(TransactionTestCase):
    databases = {"default", "other"}

    def setUp(self):
        with connections["default"].cursor() as cursor:
            cursor.execute("DELETE FROM celeriac.worker_tasks")
        kicks = mock.patch.object(current_app.enqueuer.kicker, "kick")
        self.kicked = kicks.start()
        self.addCleanup(kicks.stop)

    def test_a_call_is_of_the_transaction_around_it(self):
        with transaction.atomic():
            result = charge.delay(1)
            self.assertTrue(result.is_new)
            self.assertEqual((numbers(), elsewhere()), ([1], 0))
            self.kicked.assert_not_called()
        self.assertEqual(elsewhere(), 1)
        self.kicked.assert_called_once()

    def test_a_rollback_leaves_nothing(self):
        with self.assertRaises(Rolled), transaction.atomic():
            charge.delay(1)
            raise Rolled
        self.assertEqual(elsewhere(), 0)
        self.kicked.assert_not_called()

    def test_a_savepoints_rollback_takes_what_was_enqueued_in_it(self):
        with transaction.atomic():
            charge.delay(1)
            with self.assertRaises(Rolled), transaction.atomic():
                charge.delay(2)
                raise Rolled
            with transaction.atomic():
                charge.delay(3)
        self.assertEqual(numbers(), [1, 3])
        self.assertEqual(self.kicked.call_count, 2)

    def test_every_way_to_call_is_of_the_transaction(self):
        def everything():
            charge.delay(1)
            charge.apply_async((2,), countdown=60)
            charge.apply_async((3,), task_id="named")
            charge.apply_async((3,), task_id="named")
            current_app.send_task("shop.tasks.charge", (4,))
            charge.bulk([(5,), (6,)])
            charge.bulk([(n,) for n in range(10, 2010)])
            chain(charge.si(7), charge.si(8)).delay()
            group(charge.si(9), charge.using(lock_key="k").task.si(9)).delay()
            charge.using(lock_key="k", unique_key="u").delay(100)
            charge.using(lock_key="k", unique_key="u").delay(100)

        with self.assertRaises(Rolled), transaction.atomic():
            everything()
            raise Rolled
        self.assertEqual(elsewhere(), 0)
        with transaction.atomic():
            everything()
            self.assertEqual(elsewhere(), 0)
        self.assertEqual(numbers(), sorted([*range(1, 8), 9, 9, *range(10, 2010), 100]))

    def test_in_a_transaction_of_another_database_it_waits_for_that_ones_commit(self):
        with transaction.atomic(using="other"):
            result = charge.delay(1)
            self.assertIsNone(result.is_new)
            self.assertEqual(elsewhere(), 0)
        self.assertEqual(numbers(), [1])
        self.assertEqual(Task.objects.get().task_id, result.id)
        with self.assertRaises(Rolled), transaction.atomic(using="other"):
            charge.delay(2)
            raise Rolled
        self.assertEqual(numbers(), [1])

    @override_settings(CELERIAC_ATOMIC=False)
    def test_switched_off_a_call_is_celerys(self):
        with self.assertRaises(Rolled), transaction.atomic():
            charge.delay(1)
            raise Rolled
        self.assertEqual(elsewhere(), 1)

    def test_on_commit_tells_the_id_at_once(self):
        with transaction.atomic():
            results = [charge.delay_on_commit(1), charge.apply_async_on_commit((2,), countdown=60)]
            self.assertEqual(numbers(), [])
        found = Task.objects.order_by("id").values_list("task_id", flat=True)
        self.assertEqual([*found], [result.id for result in results])


class Rows(TestCase):
    def test_rows_live_in_the_tests_transaction(self):
        charge.delay(1)
        self.assertEqual(numbers(), [1])

    def test_the_model_is_only_read(self):
        charge.delay(1)
        task = Task.objects.get()
        self.assertEqual((task.task_name, task.status), ("shop.tasks.charge", "pending"))
        for act in (task.save, task.delete):
            with self.assertRaises(IllegalMove):
                act()

    def test_the_admin_shows_tasks_and_changes_none(self):
        task_id = charge.delay(1).id
        self.client.force_login(User.objects.create_superuser("ops"))
        row = Task.objects.get().pk
        self.assertContains(self.client.get("/admin/celeriac/task/"), task_id)
        self.assertContains(self.client.get(f"/admin/celeriac/task/{row}/change/"), task_id)
        self.assertEqual(self.client.get("/admin/celeriac/task/add/").status_code, 403)
        self.assertEqual(self.client.post(f"/admin/celeriac/task/{row}/delete/", {"post": "yes"}).status_code, 403)

    def test_the_admin_shows_nobody_what_is_sensitive(self):
        current_app.register_roles()
        refund.delay(1, card="4242 4242")
        self.client.force_login(User.objects.create_superuser("ops"))
        page = self.client.get(f"/admin/celeriac/task/{Task.objects.get().pk}/change/")
        self.assertContains(page, "card")
        self.assertNotContains(page, "4242")

    @override_settings(CELERIAC_DASHBOARD="https://jobs.example.com/admin/")
    def test_the_admin_links_to_the_dashboard(self):
        charge.delay(1)
        self.client.force_login(User.objects.create_superuser("ops"))
        row = Task.objects.get().pk
        link = f'<a href="https://jobs.example.com/admin/tasks/{row}">'
        self.assertContains(self.client.get("/admin/celeriac/task/"), link)
        self.assertContains(self.client.get(f"/admin/celeriac/task/{row}/change/"), link)

    def test_djangos_check_names_what_is_not_used(self):
        with mock.patch.dict(current_app.conf.changes, {"task_compression": "gzip"}):
            said = io.StringIO()
            call_command("check", stdout=said, stderr=said)
        self.assertIn("celeriac.W001", said.getvalue())
        self.assertIn("task_compression='gzip' is not used", said.getvalue())

    def test_the_management_command_does_what_celeriacs_does(self):
        with mock.patch("sys.stdout", io.StringIO()) as said:
            call_command("celeriac", "status", "--json")
        self.assertIn("roles", said.getvalue())
