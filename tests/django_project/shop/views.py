from django.db import transaction
from django.http import JsonResponse
from shop.models import Order
from shop.tasks import charge


def order(request):
    """`cancelled`: the request fails when all is written."""
    number = int(request.POST["number"])
    with transaction.atomic():
        Order.objects.create(number=number)
        charge.delay_on_commit(number)
        if "cancelled" in request.POST:
            raise ValueError("cancelled")
    return JsonResponse({"number": number})
