"""Without a worker."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from celery import chain, chord, group, states
from celery.exceptions import Retry
from kombu.exceptions import EncodeError
from shop import bank, journal
from shop.celery import app
from shop.mails.tasks import receipt, send_mail
from shop.orders.tasks import OutOfStock, charge, decline, reserve
from shop.reports.tasks import close_day, sales, total
from shop.stock.tasks import add, count, inventory, reprice


def test_a_task_is_called_as_a_function():
    assert reprice(Decimal(100), percent=5) == 105
    assert journal.read("called", task=decline.name) == []
    with pytest.raises(bank.Declined):
        decline(7, "no money")
    assert journal.read("called", task=decline.name)[0]["directly"]


def test_apply_runs_here():
    done = reprice.apply((200,), {"percent": 50})
    assert (done.get(), done.state, done.successful(), done.ready()) == (300, states.SUCCESS, True, True)
    assert count.apply((3,)).get()["eager"] is True


def test_apply_of_one_that_fails():
    failed = decline.apply(("7", "no money"))
    assert (failed.state, failed.failed()) == (states.FAILURE, True)
    assert isinstance(failed.result, bank.Declined)
    assert "no money" in failed.traceback
    with pytest.raises(bank.Declined, match="no money"):
        failed.get()
    with pytest.raises(bank.Declined):
        decline.apply(("7", "no money"), throw=True)
    (told,) = journal.read("on_failure", id=failed.id)
    assert told["traced"]
    assert [line["status"] for line in journal.read("after_return", id=failed.id)] == ["FAILURE"]


def test_always_eager(eager):
    assert reprice.delay(100).get() == 110
    assert reprice.apply_async((100,), countdown=600, queue="shop").get() == 110
    with pytest.raises(bank.Declined):
        decline.delay("7", "no money")


def test_always_eager_workflows(eager):
    assert chain(add.s(1, 2), add.s(3), reprice.si(10)).delay().get() == 11
    assert group(sales.s(1), sales.s(2))().get() == [10, 20]
    assert chord([sales.s(1), sales.s(2)], total.s())().get() == {"total": 30}
    close_day.delay("today")
    assert journal.read("totalled", label="today")[0]["amounts"] == [10, 20, 30]


def test_links_are_eager_too(eager):
    sales.apply_async((4,), link=receipt.s(to="eager@shop"))
    assert journal.read("receipt", to="eager@shop")[0]["order"] == 40


def test_retries_are_eager_too():
    assert charge.apply((5,), {"busy": 2}).get() == [5, 2]
    assert reserve.apply(("red",), {"missing": 2}).get() == ["red", 2]
    assert reserve.apply(("blue",), {"missing": 3}).state == states.FAILURE


def test_a_retry_that_is_mocked():
    with patch.object(reserve, "retry", side_effect=Retry) as retry, pytest.raises(Retry):
        reserve("green", missing=1)
    assert isinstance(retry.call_args.kwargs["exc"], OutOfStock)


def test_a_call_that_is_mocked():
    with patch("shop.stock.tasks.add.delay") as delay:
        app.tasks["shop.stock.tasks.restock"].run([1, 2])
    assert [call.args for call in delay.call_args_list] == [(1, 1), (2, 1)]


def test_what_is_declared():
    assert sum(name.startswith("shop.") for name in app.tasks) == 27
    assert (send_mail.ignore_result, charge.max_retries, decline.throws) == (True, 3, (bank.Declined,))
    assert (send_mail.name, count.name) == ("shop.mails.tasks.send_mail", "shop.count")
    assert inventory is app.tasks["shop.inventory"]
    assert send_mail.rate_limit == "100/s"  # the annotation


def test_calls_that_cannot_be_are_refused():
    with pytest.raises(TypeError):
        add.delay(1)
    with pytest.raises(EncodeError):
        add.delay(object(), 1)


def test_where_tasks_go():
    routes = {name: app.amqp.router.route({}, name)["queue"].name for name in (send_mail.name, sales.name, add.name)}
    assert routes == {send_mail.name: "mails", sales.name: "reports", add.name: "shop"}


def test_a_signature_is_a_value():
    call = add.s(1).set(countdown=10)
    call.link(receipt.s(to="a"))
    assert call.clone((2,)).args == (2, 1)
    assert app.signature(dict(call)) == call
    assert (call | receipt.s(to="b")).tasks[1].kwargs == {"to": "b"}


def test_the_timetable():
    entries = app.conf.beat_schedule
    assert entries["pulse"]["schedule"] == timedelta(seconds=1)
    due = entries["close the day"]["schedule"].remaining_estimate(datetime.now().astimezone())
    assert timedelta(0) < due <= timedelta(days=1)
    assert {"clear carts", "weekly"} <= entries.keys()
