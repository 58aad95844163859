from collections.abc import Iterator

import httpx
import pytest

import sandbox


@pytest.fixture
def outside() -> Iterator[sandbox.Sandbox]:
    with sandbox.start() as running:
        yield running


@pytest.fixture
def api(outside: sandbox.Sandbox) -> Iterator[httpx.Client]:
    """A bare HTTP client with the right credentials: what any client of Duda's would see."""
    environ = outside.environ()
    credentials = (environ["DUDA_API_USER"], environ["DUDA_API_PASSWORD"])
    with httpx.Client(base_url=outside.http_url, auth=credentials, timeout=10, trust_env=False) as client:
        yield client
