"""Integrations with frameworks that Celery is used with. Nothing of the engine imports them."""
