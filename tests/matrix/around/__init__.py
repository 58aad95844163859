"""Packages that Celery's users have around Celery, beside stock Celery and beside Celeriac: each by its own sink.

agents       how each tracing agent is started, and what it would send
watched      an app that an agent watches, stock or ours
traces       the tests of what the agents see: `python -m tests.matrix.around`
locks        celery-once
flask_page   the application of docs/flask.md
"""
