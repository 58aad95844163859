from celery import shared_task
from django.db import connection
from shop.models import Order, Ran


@shared_task
def charge(number: int) -> int:
    Ran.objects.create(number=number)
    Order.objects.filter(number=number).update(is_paid=True)
    return number


@shared_task
def pid() -> int:
    """Postgres' process of the task's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]
