from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from celery import shared_task
from celery.exceptions import Ignore, SoftTimeLimitExceeded

from shop import bank, journal
from shop.base import ShopTask


class OutOfStock(Exception):
    pass


@shared_task(bind=True, base=ShopTask)
def place(self, number, total, placed):
    """Waits for the bank."""
    assert (type(number), type(total), type(placed)) == (UUID, Decimal, date)
    self.update_state(state="CHARGING", meta={"total": total})
    answer = bank.answer_to(number)
    self.update_state(state="PACKING", meta={"parcels": 1})
    journal.write("placed", till=self.till.pid)
    return {"number": number, "total": total, "placed": placed, "answer": answer}


@shared_task(bind=True, autoretry_for=(bank.BankTimeout,), retry_backoff=True, retry_backoff_max=1, max_retries=3)
def charge(self, amount, busy=0):
    """The bank is busy for so many attempts."""
    if self.request.retries < busy:
        raise bank.BankTimeout(f"attempt {self.request.retries}")
    return [amount, self.request.retries]


@shared_task(bind=True, base=ShopTask, max_retries=2, default_retry_delay=0.1)
def reserve(self, sku, missing=0):
    try:
        if missing:
            raise OutOfStock(sku)
    except OutOfStock as error:
        raise self.retry(args=(sku,), kwargs={"missing": missing - 1}, exc=error) from error
    return [sku, self.request.retries]


@shared_task(bind=True)
def refund(self, amount, way):
    """Another task does it, under this one's id."""
    raise self.replace(pay_back.s(amount, way=way))


@shared_task
def pay_back(amount, way):
    return f"{amount} by {way}"


@shared_task(expires=3600)
def clear_carts(days):
    journal.write("carts cleared", days=days)


@shared_task(soft_time_limit=1, time_limit=20)
def export(number):
    try:
        bank.answer_to(number)
    except SoftTimeLimitExceeded:
        return "exported in part"


@shared_task(base=ShopTask, throws=(bank.Declined,))
def decline(number, why):
    raise bank.Declined(why)


@shared_task(bind=True)
def skip(self, of):
    self.update_state(state="SKIPPED", meta=of)
    raise Ignore


@shared_task
def tomorrow(at: datetime):
    """What was given comes back."""
    return at
