"""The engine's joints with Celery and kombu."""
