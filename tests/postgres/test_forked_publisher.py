"""A process forked while a thread of its parent publishes can publish itself."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from celeriac import Celeriac
from celeriac.dispatch.publish import Publisher

#: A child that hangs is ended after so many seconds.
HANGS = 10


@pytest.fixture
def busy(app: Celeriac) -> Iterator[Publisher]:
    """Another thread is in the middle of asking Redis."""
    began, go_on = threading.Event(), threading.Event()

    def ask(_: object) -> None:
        began.set()
        go_on.wait(HANGS)

    asking = threading.Thread(target=app.publisher._attempt, args=[ask])
    asking.start()
    assert began.wait(HANGS)
    yield app.publisher
    go_on.set()
    asking.join()


def in_a_child(act: Callable[[], bool]) -> bool:
    """What a forked child answers; False if it hangs or raises."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    answer = False
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANGS)
        answer = act()
    finally:
        os._exit(not answer)


def test_a_child_forked_while_a_thread_publishes_asks_redis_as_well(busy: Publisher) -> None:
    assert in_a_child(lambda: busy.answers())
