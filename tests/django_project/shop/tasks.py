from asgiref.sync import sync_to_async
from celery import shared_task
from django.db import connection, transaction
from shop.models import Order, Ran


@shared_task(stale_after=5)
def charge(number: int) -> int:
    """What a worker had that is silent for so long (seconds) is another's; Celery keeps the option as an attribute."""
    Ran.objects.create(number=number)
    Order.objects.filter(number=number).update(is_paid=True)
    return number


@shared_task(sensitive=("card",))
def refund(number: int, card: str) -> None:
    """Celery keeps the option as an attribute."""


def _backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@shared_task
def pid() -> int:
    """Postgres' process of the task's connection."""
    return _backend()


@shared_task
async def pid_of_coroutine() -> int:
    """The same, where the ORM runs in a thread beside the event loop's."""
    return await sync_to_async(_backend)()


@shared_task
def order(number: int) -> int:
    """Enqueues two charges: one with its outcome, one with the block around it."""
    charge.delay(number)
    with transaction.atomic():
        charge.delay(number + 1)
    if number < 0:
        raise ValueError(number)
    return number


@shared_task(bind=True, max_retries=1)
def stubborn(self, number: int) -> None:
    Ran.objects.create(number=number)
    raise self.retry(countdown=60)
