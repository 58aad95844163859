"""`celery -A shop worker`. SHOP_CELERY says whose class the app is; nothing else in the shop asks."""

from __future__ import annotations

import os
from importlib import import_module

from celery.schedules import crontab

APPS = {"stock": "celery.Celery", "celeriac": "celeriac.Celeriac"}


def create_app():
    module, _, name = APPS[os.environ.get("SHOP_CELERY", "stock")].partition(".")
    app = getattr(import_module(module), name)("shop")
    app.config_from_object("shop.settings", namespace="CELERY")
    app.autodiscover_tasks(["shop.orders", "shop.mails", "shop.stock", "shop.reports"])
    app.on_after_configure.connect(plan, weak=False)
    return app


def plan(sender, **_):
    """What is not in the settings."""
    clear = sender.signature("shop.orders.tasks.clear_carts", kwargs={"days": 2})
    sender.add_periodic_task(1.0, clear, name="clear carts")
    weekly = sender.signature("shop.reports.tasks.close_day", args=("the week",))
    sender.add_periodic_task(crontab(hour=6, minute=0, day_of_week="mon"), weekly, name="weekly")


app = create_app()

import shop.signals  # noqa: E402, F401
