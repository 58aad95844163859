"""Celery's own integration suites, run as they stand on Celery and on a Celeriac app: `make celery-suites`."""
