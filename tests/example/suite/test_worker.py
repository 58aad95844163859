"""At a real worker."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from celery import states
from celery.exceptions import TaskRevokedError
from celery.exceptions import TimeoutError as NotYet
from celery.result import AsyncResult
from conftest import until
from shop import bank, journal
from shop.celery import app
from shop.mails.tasks import alert_by_id, alert_staff, newsletter, receipt, send_mail
from shop.orders.tasks import (
    OutOfStock,
    charge,
    clear_carts,
    decline,
    export,
    pay_back,
    place,
    refund,
    reserve,
    skip,
    tomorrow,
)
from shop.stock.tasks import add, audit, count, inventory, restock, sweep

pytestmark = pytest.mark.usefixtures("worker")
PATIENCE = 30


def test_an_order_with_its_states():
    number, day = uuid4(), date(2026, 2, 28)
    order = place.delay(number, total=Decimal("19.90"), placed=day)
    until(lambda: order.state == "CHARGING", "the state")
    assert order.info == {"total": Decimal("19.90")}
    assert not order.ready()
    bank.answer(number)
    result = {"number": number, "total": Decimal("19.90"), "placed": day, "answer": "paid"}
    assert order.get(timeout=PATIENCE) == result
    again = AsyncResult(order.id, app=app)
    assert (again.state, again.result, again.successful()) == (states.SUCCESS, result, True)
    assert (again.name, again.kwargs) == (place.name, {"total": Decimal("19.90"), "placed": day})
    assert again.args == [number]
    assert (again.date_done - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC), datetime(2026, 3, 29, 2, 30), date(2026, 2, 28), time(23, 59),
        Decimal("0.10"), uuid4(), b"bytes", None, {"a": [1, 2.5, {"b": None}]}, "żółw",
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_come_back(value):
    assert tomorrow.delay(value).get(timeout=PATIENCE) == value


def test_hooks_and_signals_come_in_order():
    done = inventory.delay("a", found=3)
    assert "a" in done.get(timeout=PATIENCE)
    until(lambda: journal.read("task_postrun", id=done.id), "the last of them")
    assert [line["event"] for line in journal.read() if line.get("id") == done.id] == [
        "before_task_publish", "task_prerun", "before_start", "on_success", "task_success", "after_return",
        "task_postrun",
    ]  # fmt: skip
    assert journal.read("task_prerun", id=done.id)[0]["args"] == ["a"]


def test_a_failure_reaches_hooks_signals_and_the_caller():
    failed = inventory.delay("b", found=-1)
    with pytest.raises(ValueError, match="-1 on b"):
        failed.get(timeout=PATIENCE)
    until(lambda: journal.read("task_postrun", id=failed.id), "the last of them")
    assert [line["event"] for line in journal.read() if line.get("id") == failed.id] == [
        "before_task_publish", "task_prerun", "before_start", "on_failure", "task_failure", "after_return",
        "task_postrun",
    ]  # fmt: skip
    assert journal.read("on_failure", id=failed.id)[0]["args"] == ["b"]
    assert journal.read("task_postrun", id=failed.id)[0]["state"] == states.FAILURE
    assert isinstance(failed.get(propagate=False), ValueError)
    assert "ValueError: -1 on b" in failed.traceback


def test_a_processes_resource_is_opened_once():
    for result in [inventory.delay("c", found=n) for n in range(6)]:
        result.get(timeout=PATIENCE)
    tills = journal.read("inventory", shelf="c")
    opened = [line["pid"] for line in journal.read("till opened")]
    begun = {line["pid"] for line in journal.read("worker_process_init")}
    assert all(opened.count(line["pid"]) <= 2 for line in tills)  # a task's class each: Inventory and place
    assert {line["pid"] for line in tills} <= begun


def test_the_bank_is_asked_again():
    assert charge.delay(5, busy=1).get(timeout=PATIENCE) == [5, 1]


def test_a_reservation_is_tried_again():
    reserved = reserve.delay("red", missing=2)
    assert reserved.get(timeout=PATIENCE) == ["red", 2]
    assert len(journal.read("on_retry", id=reserved.id)) == 2


def test_retries_end():
    with pytest.raises(OutOfStock, match="blue"):
        reserve.delay("blue", missing=3).get(timeout=PATIENCE)


def test_a_declared_error():
    declined = decline.delay(7, "no money")
    with pytest.raises(bank.Declined, match="no money"):
        declined.get(timeout=PATIENCE)


def test_whoever_replaces_has_the_id():
    paid = refund.delay("5.00", way="card")
    assert paid.get(timeout=PATIENCE) == "5.00 by card"


def test_a_result_that_nobody_keeps():
    sent = send_mail.delay("a@shop", subject="Hello")
    assert sent.get(timeout=PATIENCE) is None
    until(lambda: journal.read("mail", to="a@shop"), "the mail")
    kept = add.apply_async((1, 2), ignore_result=True)
    until(lambda: journal.read("task_postrun", id=kept.id), "the task")
    assert AsyncResult(kept.id, app=app).result is None


def test_a_task_that_ignores_itself_keeps_its_state():
    skipped = skip.delay("today")
    until(lambda: journal.read("task_postrun", id=skipped.id), "the end")
    assert (skipped.state, skipped.info) == ("SKIPPED", "today")


def test_a_soft_limit():
    assert export.delay("never").get(timeout=PATIENCE) == "exported in part"


def test_a_call_for_later():
    begun = datetime.now(UTC)
    first = tomorrow.apply_async((1,), countdown=1)
    second = tomorrow.apply_async((2,), eta=begun + timedelta(seconds=1))
    assert [first.get(timeout=PATIENCE), second.get(timeout=PATIENCE)] == [1, 2]
    assert datetime.now(UTC) - begun >= timedelta(seconds=1)


def test_a_call_that_comes_too_late():
    late = clear_carts.apply_async((5,), expires=datetime.now(UTC) - timedelta(minutes=1))
    until(lambda: late.state == states.REVOKED, "the state")
    with pytest.raises(TaskRevokedError):
        late.get(timeout=PATIENCE)
    assert not journal.read("carts cleared", days=5)


def test_what_is_linked():
    order = add.apply_async((1, 2), link=receipt.s(to="linked@shop"))
    until(lambda: journal.read("receipt", to="linked@shop", order=3), "the receipt")
    until(lambda: order.children, "the child")
    assert order.children[0].get(timeout=PATIENCE) == "receipt for linked@shop"


def test_what_is_linked_to_an_error():
    failed = decline.apply_async((8, "no"), link_error=[alert_staff.s(), alert_by_id.s("kitchen")])
    with pytest.raises(bank.Declined):
        failed.get(timeout=PATIENCE)
    (told,) = until(lambda: journal.read("alert", of=failed.id), "the alert")
    assert (told["error"], told["traced"]) == ("no", True)
    until(lambda: journal.read("alert by id", of=failed.id, room="kitchen"), "the other")


def test_what_a_request_says():
    said = count.apply_async(("top",), task_id=f"count-{uuid4()}")
    assert said.get(timeout=PATIENCE) == {
        "shelf": "top", "id": said.id, "root": said.id, "parent": None, "queue": "shop", "eager": False,
        "retries": 0, "args": ["top"], "kwargs": {}, "group": None,
    }  # fmt: skip


def test_by_name():
    named = app.send_task("shop.orders.tasks.pay_back", args=["3"], kwargs={"way": "cash"})
    assert named.get(timeout=PATIENCE) == "3 by cash"


def test_a_tasks_children():
    parent = restock.delay([1, 2])
    ids = parent.get(timeout=PATIENCE)
    assert [child.id for child in parent.children] == ids
    assert [value for _, value in parent.collect()] == [ids, 2, 3]


def test_waiting_has_an_end_and_forgetting_too():
    waiting = tomorrow.apply_async((1,), countdown=600)
    with pytest.raises(NotYet):
        waiting.get(timeout=0.1)
    waiting.revoke()
    done = add.delay(1, 1)
    assert done.get(timeout=PATIENCE) == 2
    done.forget()
    assert AsyncResult(done.id, app=app).state == states.PENDING


def test_one_that_waits_is_revoked():
    waiting = pay_back.apply_async(("1",), {"way": "post"}, countdown=1)
    waiting.revoke()
    with pytest.raises(TaskRevokedError):
        waiting.get(timeout=PATIENCE)
    assert waiting.state == states.REVOKED


def test_one_that_runs_is_terminated():
    number = uuid4()
    running = audit.delay(number)
    until(lambda: journal.read("audit", id=running.id), "it to run")
    running.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        running.get(timeout=PATIENCE)
    (told,) = until(lambda: journal.read("task_revoked", id=running.id), "the signal")
    assert (told["terminated"], told["expired"]) == (True, False)


def test_one_that_runs_is_aborted():
    sweeping = sweep.delay()
    until(lambda: journal.read("sweeping", id=sweeping.id), "it to run")
    sweep.AsyncResult(sweeping.id).abort()
    assert sweeping.get(timeout=PATIENCE) == "not waited for"


def test_a_base_class_adds_to_calls():
    assert newsletter.delay("a").get(timeout=PATIENCE) == "bikes to a"
    assert newsletter.s("b").delay().get(timeout=PATIENCE) == "bikes to b"


def test_who_is_there():
    inspect = app.control.inspect(destination=["till@shop"], timeout=20, limit=1)
    assert inspect.ping() == {"till@shop": {"ok": "pong"}}
    assert app.control.ping(destination=["till@shop"], timeout=20, limit=1) == [{"till@shop": {"ok": "pong"}}]
    assert {queue["name"] for queue in inspect.active_queues()["till@shop"]} >= {"shop", "mails", "reports"}
    assert any(line.startswith(send_mail.name) for line in inspect.registered()["till@shop"])
    assert inspect.stats()["till@shop"]["pool"]["max-concurrency"] == 2
    number = uuid4()
    running = audit.delay(number)
    until(lambda: journal.read("audit", id=running.id), "it to run")
    (active,) = [task for task in inspect.active()["till@shop"] if task["id"] == running.id]
    assert (active["name"], active["args"]) == (audit.name, [number])
    bank.answer(number, "fine")
    assert running.get(timeout=PATIENCE) == "fine"
