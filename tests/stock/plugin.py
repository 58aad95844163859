"""For pytest: Celery's test app is a Celeriac; nothing else is exchanged."""

from __future__ import annotations

from celery.contrib.testing import app as testing

from celeriac import Celeriac


def pytest_configure() -> None:
    testing.Celery = Celeriac
