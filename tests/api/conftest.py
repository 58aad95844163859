"""One running server for all tests of the API; each looks at rows of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.api.page import LISTED
from tests.api.server import Api, serving
from tests.conftest import ROOT, Servers


@pytest.fixture(scope="session")
def database_of_the_api(servers: Servers, template: str) -> Iterator[str]:
    with servers.cloned(template) as url:
        yield url


@pytest.fixture(scope="session")
def api(servers: Servers, database_of_the_api: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """`celeriac -A tasks serve`."""
    redis.Redis.from_url(servers.redis_url).flushdb()
    log: Path = tmp_path_factory.mktemp("api") / "log"
    with serving(database_of_the_api, servers.redis_url, log, QM_HOOKS="true") as api:
        yield api


@pytest.fixture(autouse=True)
def calls_what_the_page_says(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that docs/api.md names for an endpoint calls it, and is answered well."""
    file, name = str(request.path.relative_to(ROOT)), request.function.__name__
    listed = [one for one in LISTED if (one.file, one.test) == (file, name)]
    if listed:
        request.getfixturevalue("api").called.clear()
    yield
    for one in listed:
        called = request.getfixturevalue("api").called
        assert any(one.is_called_by(*call) for call in called), f"{name} never calls {one.method} {one.path}"
