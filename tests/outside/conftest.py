from collections.abc import Iterator

import pytest

import sandbox


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[sandbox.Sandbox]:
    """A running sandbox, with the environment pointing to it."""
    with sandbox.start() as running:
        for name, value in running.environ().items():
            monkeypatch.setenv(name, value)
        yield running
