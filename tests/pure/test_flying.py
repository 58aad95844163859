"""What flies on a loop: greenlets that serve one task after another, and the pace at which tasks end."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from celeriac.run.coroutines import GreenletPool, _await_here, in_flight
from celeriac.run.filler import OF_LATE, Throughput
from celeriac.run.flight import FlightWatch
from celeriac.run.outside import GreenletExit, is_from_outside

whose: ContextVar[int] = ContextVar("whose", default=0)


def flown(*acts: Any) -> list[Any]:
    """What each function came to, one after the other on the same greenlet: its error, or None."""

    async def fly() -> list[Any]:
        greenlets, ended = GreenletPool(), []
        for act in acts:
            try:
                ended.append(await greenlets.spawn(act))
            except Exception as error:
                ended.append(error)
        assert len(greenlets._idle) == 1
        return ended

    return asyncio.run(fly())


def test_an_error_is_that_of_one_task_and_the_greenlet_serves_the_next() -> None:
    served: list[bool] = []
    error = ValueError("no")

    def fail() -> None:
        raise error

    assert flown(fail, lambda: served.append(in_flight())) == [error, None]
    assert served == [True]


def test_each_task_has_its_own_context() -> None:
    seen: list[int] = []

    async def of(n: int, greenlets: GreenletPool) -> None:
        whose.set(n)

        def act() -> None:
            seen.append(whose.get())
            _await_here(asyncio.sleep(0), None)
            seen.append(whose.get())

        await greenlets.spawn(act)

    async def fly() -> None:
        greenlets = GreenletPool()
        for first in (1, 3):
            await asyncio.gather(of(first, greenlets), of(first + 1, greenlets))

    asyncio.run(fly())
    assert seen == [1, 2, 1, 2, 3, 4, 3, 4]


def test_one_that_waits_for_its_next_task_keeps_nothing_of_the_last() -> None:
    class Kept:
        def __call__(self) -> None:
            """Nothing."""

    async def fly() -> None:
        greenlets, act = GreenletPool(), Kept()
        await greenlets.spawn(act)
        kept = weakref.ref(act)
        del act
        gc.collect()
        assert kept() is None

    asyncio.run(fly())


@pytest.mark.parametrize("rate", [10, 1_000])
def test_a_pace_is_how_many_ended_a_second_of_late(rate: int) -> None:
    pace = Throughput()
    for n in range(2 * rate):
        pace.add(1, n / rate)
    assert pace.rate(2.0) == pytest.approx(rate, rel=0.25)
    assert pace.rate(2.0 + 10 * OF_LATE) < rate / 1_000


def test_a_task_that_raises_greenlet_exit_itself_ends_alone() -> None:
    class Caught(Exception):
        """Another task's end."""

    def leave() -> None:
        raise GreenletExit("its own")

    def fail() -> None:
        raise Caught

    async def fly() -> None:
        greenlets = GreenletPool()
        with pytest.raises(GreenletExit, match="its own"):
            await greenlets.spawn(leave)
        with pytest.raises(Caught):
            await greenlets.spawn(fail)
        assert len(greenlets._idle) == 1

    asyncio.run(fly())


def test_what_a_loop_drops_means_more_than_its_task() -> None:
    told: list[bool] = []

    def waits() -> None:
        try:
            _await_here(asyncio.sleep(0), None)
        except BaseException as error:
            told.append(is_from_outside(error))
            raise

    spawned = GreenletPool().spawn(waits)
    spawned.send(None)
    with pytest.raises(GeneratorExit):
        spawned.throw(GeneratorExit)
    assert told == [True]
    assert not is_from_outside(GeneratorExit())


def test_the_watch_of_a_loop_that_is_closed_ends() -> None:
    """The pool may stop between two of its looks."""
    loop = asyncio.new_event_loop()
    loop.close()
    flights: Any = SimpleNamespace(loop=loop, over=threading.Event())
    FlightWatch(flights).watch_loop()
