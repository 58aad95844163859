from __future__ import annotations

from celery import Task, shared_task

from shop import journal


class OfAShop(Task):
    """Its calls say for which shop."""

    abstract = True

    def apply_async(self, args=None, kwargs=None, **options):
        return super().apply_async(args, {**(kwargs or {}), "shop": "bikes"}, **options)


@shared_task(ignore_result=True, rate_limit="10/m")
def send_mail(to, subject):
    journal.write("mail", to=to, subject=subject)
    return "kept by nobody"


@shared_task
def receipt(order, to):
    """Linked behind an order."""
    journal.write("receipt", order=order, to=to)
    return f"receipt for {to}"


@shared_task
def alert_staff(request, exc, traceback):
    journal.write("alert", of=request.id, error=str(exc), traced="Traceback" in str(traceback))


@shared_task(bind=True)
def alert_by_id(self, failed_id, room):
    journal.write("alert by id", of=failed_id, room=room)


@shared_task(base=OfAShop)
def newsletter(to, shop=None):
    return f"{shop} to {to}"
