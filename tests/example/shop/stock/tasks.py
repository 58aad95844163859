from __future__ import annotations

from celery import shared_task
from celery.contrib.abortable import AbortableTask

from shop import bank, journal
from shop.base import ShopTask
from shop.celery import app


@shared_task
def reprice(price, percent=10):
    return price + price * percent / 100


@app.task(bind=True, name="shop.count")
def count(self, shelf):
    """How many there are, and who says so."""
    request = self.request
    return {
        "shelf": shelf, "id": request.id, "root": request.root_id, "parent": request.parent_id,
        "queue": request.delivery_info["routing_key"], "eager": request.is_eager, "retries": request.retries,
        "args": list(request.args), "kwargs": request.kwargs, "group": request.group,
    }  # fmt: skip


@app.task
def add(x, y):
    return x + y


@app.task(bind=True)
def restock(self, shelves):
    """A task that starts others."""
    return [add.delay(shelf, 1).id for shelf in shelves]


class Inventory(ShopTask):
    """A class task with what all its runs share."""

    name = "shop.inventory"
    ignore_result = False
    max_retries = 1

    def __init__(self):
        self.shelves = {}

    def run(self, shelf, found):
        if found < 0:
            raise ValueError(f"{found} on {shelf}")
        self.shelves[shelf] = found
        journal.write("inventory", shelf=shelf, till=self.till.pid)
        return sorted(self.shelves)


inventory = app.register_task(Inventory())


@app.task(bind=True, base=AbortableTask)
def sweep(self):
    journal.write("sweeping", id=self.request.id)
    return bank.answer_to(self.request.id, stop=self.is_aborted)


@app.task(bind=True)
def audit(self, number):
    """Long, and may be revoked."""
    journal.write("audit", id=self.request.id)
    return bank.answer_to(number)
