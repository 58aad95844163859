"""Where the engine meets Celery and kombu."""
