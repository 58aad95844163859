"""What interrupts a handler is raised in it, or not at all."""

from __future__ import annotations

import ctypes
import gc
import logging
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from celeriac.errors import TaskCancelled
from celeriac.roles.role import Role
from celeriac.run import interrupts
from celeriac.run.interrupts import Thread
from celeriac.run.places import Place, Places, Process
from celeriac.run.run import Run
from celeriac.run.start import Started
from celeriac.store.connections import Database
from tests.processes import until

RUN = Run(
    Started(
        id=1, task_id="t", role="work", account="", args=[], kwargs={}, headers=None, retry_count=0, max_retries=3,
        tries=0, max_rounds=1, losses=0, priority=0, timeout=None, parent_id=None, lock_key=None,
        enqueued_by=None, expired=None, token="",
    ),
    Role(name="work"),
    Database("postgresql://nobody@127.0.0.1:1/none"),
)  # fmt: skip


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals this process got."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: heard.append(number))
    yield heard
    signal.signal(signal.SIGUSR2, before)


def in_another_thread(do: Callable[[], object]) -> None:
    thread = threading.Thread(target=do)
    thread.start()
    thread.join()


def test_a_process_is_watched_whatever_its_threads_took_before(heard: list[int]) -> None:
    places = Places()
    places.take()
    places.kind = Thread
    places.give_back(places.take())
    assert [type(place) for place in places.taken()] == [Process]
    assert not heard


def test_no_signal_is_sent_where_no_handler_was_installed(heard: list[int]) -> None:
    made: list[Place] = []
    in_another_thread(lambda: made.append(Process(0)))
    made[0].interrupt(RUN, TaskCancelled())
    assert heard == []


def test_only_the_thread_that_runs_tasks_now_is_interrupted(heard: list[int]) -> None:
    """As in tests, where the main thread runs some, and an embedded worker's thread others."""
    process = Process(0)
    assert process.hears
    in_another_thread(process.listen)
    assert not process.hears
    process.listen()
    assert process.hears


@pytest.fixture
def busy() -> Iterator[None]:
    """Threads that take turns all the time, and no collection: what is raised in somebody's hook on it is only told."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    gc.disable()
    yield
    gc.enable()
    sys.setswitchinterval(before)


def test_a_thread_is_interrupted_in_its_handler_and_nowhere_else(busy: None) -> None:  # noqa: C901
    """Whatever the moment, while another thread does nothing but interrupt."""
    place: list[Thread] = []
    ready, over = threading.Event(), threading.Event()
    came = Counter[str]()

    def handler(n: int) -> None:
        time.sleep(0)
        sum(abs(i) for i in range(n))

    def work() -> None:
        try:
            place.append(Thread(0))
            ready.set()
            while came["inside"] < 40 or came["ended"] < 40:
                try:
                    place[0].call(RUN, handler, (came["ended"] % 7,), {})
                except SoftTimeLimitExceeded:
                    came["inside"] += 1
                else:
                    came["ended"] += 1
                handler(3)
        except BaseException as error:
            came[f"outside: {error!r}"] += 1
        finally:
            over.set()

    def interrupt() -> None:
        ready.wait()
        while not over.is_set():
            place[0].interrupt(RUN, SoftTimeLimitExceeded(5))

    threads = [threading.Thread(target=do) for do in (work, interrupt)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(came) == {"inside", "ended"}


def test_what_comes_as_the_handler_ends_does_not_come_later() -> None:
    """The watch has seen the handler at work, which ends before the watch has acted on it."""
    place: list[Thread] = []
    came: list[str] = []
    go = threading.Event()

    def work() -> None:
        place.append(Thread(0))
        go.wait()
        try:
            place[0].call(RUN, lambda: None, (), {})
        except SoftTimeLimitExceeded:
            came.append("inside")
        for _ in range(1000):
            abs(1)
        came.append("went on")

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: place, "the thread")
    with place[0].lock:
        go.set()
        until(lambda: sys._current_frames()[place[0].ident].f_code.co_name == "_forget", "the end of the handler")
        interrupts._raise_in(ctypes.c_ulong(place[0].ident), ctypes.py_object(SoftTimeLimitExceeded))
    thread.join()
    assert came[-1:] == ["went on"]


def interrupted(error: BaseException) -> BaseException:
    """As a handler meets it."""
    met: list[BaseException] = []

    def work() -> None:
        place = Thread(0)

        def handler() -> None:
            place.interrupt(RUN, error)
            for _ in range(1000):
                pass

        try:
            place.call(RUN, handler, (), {})
        except BaseException as came:
            met.append(came)

    in_another_thread(work)
    return met[0]


def test_a_handler_meets_the_error_that_was_meant() -> None:
    met = interrupted(SoftTimeLimitExceeded(5))
    assert isinstance(met, SoftTimeLimitExceeded)
    assert str(met) == str(SoftTimeLimitExceeded(5))
    assert (type(met).__name__, type(met).__module__) == ("SoftTimeLimitExceeded", SoftTimeLimitExceeded.__module__)
    assert type(pickle.loads(pickle.dumps(met))) is SoftTimeLimitExceeded
    assert isinstance(interrupted(TaskCancelled("task 1 was cancelled")), TaskCancelled)


def test_who_is_not_in_the_handler_yet_is_told_later() -> None:
    assert Thread(0).interrupt(RUN, SoftTimeLimitExceeded(5)) is False


def test_a_thread_is_not_interrupted_where_it_would_keep_a_lock_of_the_log() -> None:
    """It may hold one that all threads need; it is tried again."""
    place: list[Thread] = []
    handler = logging.Handler()
    handler.acquire()
    log = logging.getLogger("celeriac.test")
    log.addHandler(handler)
    handler.emit = lambda _: None  # type: ignore[method-assign]
    said: list[BaseException | None] = []

    def work() -> None:
        place.append(Thread(0))
        try:
            place[0].call(RUN, lambda: log.warning("hello"), (), {})
        except BaseException as error:
            said.append(error)
        else:
            said.append(None)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: place and sys._current_frames()[place[0].ident].f_globals["__name__"] == "logging", "the log's lock")
    assert place[0].interrupt(RUN, TaskCancelled()) is False
    handler.release()
    thread.join()
    log.removeHandler(handler)
    assert said == [None]
