"""Celery's own integration suites, run as they stand on a Celeriac app: `python -m tests.stock`."""
