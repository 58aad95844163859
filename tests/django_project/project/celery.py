"""Django's usual module; the setting SHOP_CELERY says whose class it is."""

import os

from celery import Celery
from django.conf import settings

from celeriac import Celeriac

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

app = {"stock": Celery, "celeriac": Celeriac}[settings.SHOP_CELERY]("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
