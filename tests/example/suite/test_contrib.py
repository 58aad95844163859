"""With the fixtures of Celery's pytest plugin."""

from __future__ import annotations

from decimal import Decimal

import pytest
from celery import chord, shared_task
from shop.orders.tasks import charge, reserve, tomorrow
from shop.reports.tasks import sales, total

PATIENCE = 30


@pytest.fixture(scope="session")
def celery_config():
    return {
        "result_extended": True,
        "task_default_queue": "contrib",
        "broker_transport_options": {"polling_interval": 0.05},
    }


@pytest.fixture(scope="session")
def celery_worker_parameters():
    return {"ping_task_timeout": 30, "shutdown_timeout": 30}


@pytest.fixture(scope="session")
def celery_includes():
    return ["shop.orders.tasks", "shop.reports.tasks"]


def test_an_app_of_the_tests_own(celery_app):
    assert celery_app.conf.task_default_queue == "contrib"
    assert sales.name in celery_app.tasks


@pytest.mark.celery(timezone="Asia/Tokyo", task_always_eager=True)
def test_a_mark_configures_it(celery_app):
    assert str(celery_app.timezone) == "Asia/Tokyo"

    @celery_app.task
    def here():
        return "here"

    assert here.delay().get() == "here"


@shared_task(bind=True)
def who(self):
    return [self.request.id, self.name]


def test_the_shops_tasks_and_the_tests_own_at_a_worker_in_a_thread(celery_app, celery_worker):
    assert tomorrow.delay(Decimal("1.50")).get(timeout=PATIENCE) == Decimal("1.50")
    assert reserve.delay("red", missing=1).get(timeout=PATIENCE) == ["red", 1]
    assert charge.delay(7, busy=0).get(timeout=PATIENCE) == [7, 0]
    assert chord([sales.s(1), sales.s(2)], total.s())().get(timeout=PATIENCE) == {"total": 30}

    @celery_app.task
    def multiply(x, y):
        return x * y

    celery_worker.reload()
    assert multiply.delay(4, 4).get(timeout=PATIENCE) == 16
    asked = who.delay()
    assert asked.get(timeout=PATIENCE) == [asked.id, who.name]
