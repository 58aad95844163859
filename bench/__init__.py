"""Side-by-side measurements against plain Celery, on the same Postgres and Redis, in one run."""
