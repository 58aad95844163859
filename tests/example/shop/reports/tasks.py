from __future__ import annotations

from celery import chord, group, shared_task

from shop import journal
from shop.bank import Declined


@shared_task
def pulse(of):
    journal.write("pulse", of=of)


@shared_task
def sales(day):
    if day < 0:
        raise Declined(f"day {day}")
    return day * 10


@shared_task
def total(amounts, label="total"):
    journal.write("totalled", label=label, amounts=amounts)
    return {label: sum(amounts)}


@shared_task
def close_day(label):
    return chord(group(sales.s(day) for day in (1, 2, 3)), total.s(label=label)).delay().id


@shared_task(bind=True)
def sales_and_more(self, day):
    """Finds out that there is another day."""
    self.add_to_chord(sales.s(day + 1))
    return day * 10
