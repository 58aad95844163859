"""A Redis that lacks what only tells of it, as managed ones do: tickets are published all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celeriac import Celeriac, local


class Bare(local.ValkeyServer):
    """A Redis without these commands."""

    def _command(self, port: int) -> list[str]:
        renamed = [word for name in ("SLOWLOG", "INFO") for word in ("--rename-command", name, "")]
        return [*super()._command(port), *renamed]

    def _answers(self, port: int, pid: int) -> bool:
        """INFO would tell whether it is this very server."""
        return not local.valkey.is_free(port)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    server = Bare(tmp_path / "valkey")
    server.start()
    yield server.url
    server.stop()


def test_what_it_does_not_tell_leaves_the_breaker_closed(app: Celeriac) -> None:
    assert app.publisher.kick("work", "work")
    assert (app.publisher.questions.slowest(), app.publisher.questions.memory_used()) == (None, 0.0)
    assert app.publisher.is_open
    assert app.publisher.answers()
