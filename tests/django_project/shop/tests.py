"""The project's own suite, on stock Celery and on Celeriac alike: tasks run eagerly."""

from celery import chain
from django.core.management import call_command
from django.db import transaction
from django.test import TestCase, TransactionTestCase
from shop.models import Order, Ran
from shop.tasks import charge


class Eager(TestCase):
    def test_a_call_runs_at_once(self):
        Order.objects.create(number=1)
        self.assertEqual(charge.delay(1).get(), 1)
        self.assertTrue(Order.objects.get(number=1).is_paid)

    def test_a_view_charges_after_its_commit(self):
        with self.captureOnCommitCallbacks(execute=True):
            self.assertEqual(self.client.post("/orders/", {"number": 2}).status_code, 200)
            self.assertFalse(Order.objects.get(number=2).is_paid)
        self.assertTrue(Order.objects.get(number=2).is_paid)

    def test_a_chain(self):
        self.assertEqual(chain(charge.s(3), charge.si(4)).apply_async().get(), 4)
        self.assertEqual(sorted(Ran.objects.values_list("number", flat=True)), [3, 4])

    def test_djangos_checks_find_no_error(self):
        call_command("check")


class Committed(TransactionTestCase):
    def test_what_is_rolled_back_charges_nobody(self):
        with self.assertRaises(ValueError):
            self.client.post("/orders/", {"number": 5, "cancelled": "yes"})
        self.assertEqual((Order.objects.count(), Ran.objects.count()), (0, 0))

    def test_a_commit_charges(self):
        with transaction.atomic():
            charge.apply_async_on_commit((6,))
            self.assertEqual(Ran.objects.count(), 0)
        self.assertEqual(Ran.objects.get().number, 6)
