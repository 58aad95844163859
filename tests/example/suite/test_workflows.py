"""Workflows at a real worker."""

from __future__ import annotations

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError, TaskRevokedError
from celery.result import GroupResult
from conftest import until
from shop import bank, journal
from shop.celery import app
from shop.mails.tasks import alert_staff
from shop.orders.tasks import charge, reserve
from shop.reports.tasks import close_day, sales, sales_and_more, total
from shop.stock.tasks import add, count

pytestmark = pytest.mark.usefixtures("worker")
PATIENCE = 30


def test_a_chain():
    last = chain(add.s(1, 2), add.s(3), add.s(4))()
    assert last.get(timeout=PATIENCE) == 10
    assert [last.parent.get(timeout=PATIENCE), last.parent.parent.get(timeout=PATIENCE)] == [6, 3]


def test_links_know_where_they_come_from():
    last = (add.si(1, 2) | count.si("x"))()
    said = last.get(timeout=PATIENCE)
    assert (said["root"], said["parent"]) == (last.parent.id, last.parent.id)


def test_a_chain_that_breaks():
    last = chain(sales.s(-5), add.s(1), add.s(2)).apply_async(link_error=alert_staff.s())
    with pytest.raises(bank.Declined, match="day -5"):
        last.get(timeout=PATIENCE)
    until(lambda: journal.read("alert", of=last.parent.parent.id), "the alert")


def test_a_group():
    days = group(sales.s(n) for n in range(4)).delay()
    assert days.get(timeout=PATIENCE) == [0, 10, 20, 30]
    assert (days.completed_count(), days.successful(), len(days)) == (4, True, 4)
    assert [result.get() for result in days] == [0, 10, 20, 30]


def test_a_group_is_saved_and_restored():
    days = group(sales.s(1), sales.s(2)).delay()
    days.save(backend=app.backend)
    again = GroupResult.restore(days.id, app=app)
    assert again.join(timeout=PATIENCE) == [10, 20]
    assert again == days
    again.delete(backend=app.backend)
    assert GroupResult.restore(days.id, app=app) is None


def test_a_chord():
    body = chord([sales.s(1), sales.s(2), charge.s(5, busy=1) | add.si(1, 1)], total.s(label="sum"))()
    assert body.get(timeout=PATIENCE) == {"sum": 32}
    assert body.parent.completed_count() == 3


def test_a_chord_with_a_member_that_fails():
    body = chord([sales.s(1), sales.s(-1)], total.s().on_error(alert_staff.s()))()
    error = body.get(timeout=PATIENCE, propagate=False)
    assert isinstance(error, ChordError)
    assert "day -1" in str(error)
    until(lambda: journal.read("alert", of=body.id), "the alert")


def test_members_that_fail():
    days = group(sales.s(1), sales.s(-1), sales.s(-2) | add.s(1))()
    first, *others = days.get(timeout=PATIENCE, propagate=False)
    assert (first, [type(error) for error in others]) == (10, [bank.Declined, bank.Declined])
    assert (days.ready(), days.successful(), days.failed(), days.completed_count()) == (True, False, True, 1)
    with pytest.raises(bank.Declined, match="day -"):
        days.get(timeout=PATIENCE)


def test_links_are_tried_again():
    assert chain(reserve.s("red", missing=1), count.s())().get(timeout=PATIENCE)["shelf"] == ["red", 1]


def test_workflows_in_workflows():
    whole = chain(add.s(1, 1), group(add.s(1), add.s(2)), total.s())
    assert whole().get(timeout=PATIENCE) == {"total": 7}
    nested = group(chain(add.s(1, 1), add.s(1)), chord([sales.s(1)], total.s()))
    assert nested().get(timeout=PATIENCE) == [3, {"total": 10}]


def test_a_task_that_starts_a_workflow():
    body = close_day.delay("evening").get(timeout=PATIENCE)
    assert app.AsyncResult(body).get(timeout=PATIENCE) == {"evening": 60}


def test_a_member_adds_another():
    body = chord([sales_and_more.s(1), sales.s(5)], total.s())()
    assert body.get(timeout=PATIENCE) == {"total": 80}


def test_map_starmap_and_chunks():
    assert sales.map([1, 2]).delay().get(timeout=PATIENCE) == [10, 20]
    assert add.starmap([(1, 2), (3, 4)]).delay().get(timeout=PATIENCE) == [3, 7]
    assert add.chunks([(n, n) for n in range(5)], 2)().get(timeout=PATIENCE) == [[0, 2], [4, 6], [8]]


def test_a_group_is_revoked():
    days = group(sales.s(1), sales.s(2)).apply_async(countdown=1)
    days.revoke()
    for result in days:
        with pytest.raises(TaskRevokedError):
            result.get(timeout=PATIENCE)
