"""For pytest: Celery's test app is a Celeriac; nothing else is exchanged."""

from __future__ import annotations

from typing import Any

import pytest
from celery.contrib.testing import app as testing

from celeriac import Celeriac


@pytest.fixture(scope="session", autouse=True)
def celeriac_app() -> Any:
    stock, testing.Celery = testing.Celery, Celeriac
    yield
    testing.Celery = stock
