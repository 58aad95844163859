"""Which tickets lie in a queue is read page by page, however long it is, and nobody is kept waiting for it."""

from __future__ import annotations

import pytest

from celeriac import Celeriac
from celeriac.dispatch import publish
from celeriac.dispatch.claim import fresh_token
from celeriac.dispatch.publish import Ticket


@pytest.fixture
def put(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tokens of five tickets that queue."""
    monkeypatch.setattr(publish, "PAGE", 2)
    tokens = [fresh_token() for _ in range(5)]
    for n, token in enumerate(tokens):
        assert app.publisher.publish([Ticket("work", "work", [n], token)])
    return tokens


@pytest.fixture
def pages(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long each page was. After the first one somebody publishes a ticket."""
    read: list[int] = []
    tokens_in = publish.tokens_in

    def look(page: list[bytes]) -> set[str]:
        assert not app.publisher._lock.locked()
        if not read:
            assert app.publisher.publish([Ticket("work", "work", [100], fresh_token())])
        read.append(len(page))
        return tokens_in(page)

    monkeypatch.setattr(publish, "tokens_in", look)
    return read


def test_between_two_pages_of_a_queue_others_publish(app: Celeriac, put: list[str], pages: list[int]) -> None:
    assert app.publisher.queued("work", [*put, fresh_token()]) == set(put)
    assert pages == [2, 2, 2, 0]


def test_once_all_that_is_wanted_is_found_nothing_more_is_read(app: Celeriac, put: list[str], pages: list[int]) -> None:
    """The oldest, which are looked for, come first."""
    assert app.publisher.queued("work", put[:3]) == set(put[:3])
    assert pages == [2, 2]
