"""The background jobs of a small web shop, as Celery code bases have them: see `shop.celery` for what is exchanged."""

from shop.celery import app as celery_app

__all__ = ["celery_app"]
