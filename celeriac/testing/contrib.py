"""Celery's own pytest plugin on rows: `pytest_plugins = ["celery.contrib.pytest", "celeriac.testing.contrib"]`.

The fixtures work as Celery documents them, except for the servers: each app has a database of its own and the session's
Redis, whatever brokers and backends `celery_config` and `celery_parameters` name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from celery.contrib import pytest as stock
from celery.contrib.testing import app as stock_app

from celeriac import Celeriac, Settings
from celeriac.seam.broker import BROKERS
from celeriac.seam.configuration import BACKEND
from celeriac.testing.servers import Servers, for_tests, without_brokers

Make = Callable[[pytest.FixtureRequest], AbstractContextManager[Celeriac]]


@pytest.fixture(scope="session")
def celeriac_made(
    celery_config: Any, celery_parameters: Any, celery_enable_logging: bool, use_celery_app_trap: bool,
    celeriac_servers: Servers, celeriac_template: str,
) -> Make:  # fmt: skip
    """Return the function that makes the app of a test or a session."""
    return partial(
        _made, config=celery_config, parameters=celery_parameters, logs=celery_enable_logging,
        trap=use_celery_app_trap, servers=celeriac_servers, template=celeriac_template,
    )  # fmt: skip


@pytest.fixture(scope="session")
def celery_session_app(
    request: pytest.FixtureRequest, celeriac_made: Make, use_celery_app_trap: bool
) -> Iterator[Celeriac]:
    with celeriac_made(request) as app:
        if not use_celery_app_trap:
            app.set_default()
            app.set_current()
        yield app


@pytest.fixture
def celery_app(request: pytest.FixtureRequest, celeriac_made: Make) -> Iterator[Celeriac]:
    with celeriac_made(request) as app:
        yield app


@contextmanager
def _made(
    request: pytest.FixtureRequest, config: Mapping[str, Any], parameters: Mapping[str, Any], logs: bool, trap: bool,
    servers: Servers, template: str,
) -> Iterator[Celeriac]:  # fmt: skip
    """Yield an app made by Celery's own code, which takes the app's class from its module."""
    mark = request.node.get_closest_marker("celery")
    with ExitStack() as life:
        url, prefix = life.enter_context(servers.cloned(template)), life.enter_context(servers.prefix())
        life.enter_context(without_brokers())
        settings = for_tests(Settings.from_environ(), url, servers.redis_url)
        said = {**config, **(mark.kwargs if mark else {})}
        said["broker_transport_options"] = {**said.get("broker_transport_options", {}), "global_keyprefix": prefix}
        said |= dict.fromkeys(BROKERS, servers.redis_url) | {"result_backend": BACKEND}
        app_parameters = {name: value for name, value in parameters.items() if name not in ("broker", "backend")}
        with patch.object(stock_app, "Celery", partial(Celeriac, settings=settings)):
            making = stock._create_app(enable_logging=logs, use_trap=trap, parameters=app_parameters, **said)
            app = life.enter_context(making)
        yield app
