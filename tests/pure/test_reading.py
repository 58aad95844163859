"""What a page needs is read at once, by threads and by whoever waits for them."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from celeriac import Celeriac
from celeriac.dashboard.reading import THREADS, Reading


@pytest.fixture
def reading() -> Reading:
    return Reading(Celeriac("reading"))


def test_two_readings_are_under_way_at_the_same_time(reading: Reading) -> None:
    both = threading.Barrier(2)
    assert set(reading.at_once("both", {"one": lambda: both.wait(30), "other": lambda: both.wait(30)}).values()) == {
        0,
        1,
    }


def test_what_no_thread_has_begun_is_read_by_who_waits_for_it(reading: Reading) -> None:
    """Where the threads are busy with what takes long, a page is not."""
    go, busy = threading.Event(), threading.Semaphore(0)

    def slowly() -> None:
        busy.release()
        assert go.wait(30)

    slow = {str(n): slowly for n in range(THREADS + 1)}
    others = threading.Thread(target=reading.at_once, args=("slow", slow))
    others.start()
    for _ in slow:
        assert busy.acquire(timeout=30)
    mine = threading.current_thread()
    read = reading.at_once("mine", dict.fromkeys("abc", threading.current_thread))
    go.set()
    others.join(30)
    assert read == dict.fromkeys("abc", mine)


def test_one_may_read_at_once_what_it_is_made_of(reading: Reading) -> None:
    def parts(n: int) -> dict[str, int]:
        return reading.at_once(n, {"one": lambda: 1, "two": lambda: 2})

    found = reading.at_once("whole", {str(n): partial(parts, n) for n in range(4 * THREADS)})
    assert list(found.values()) == [{"two": 2, "one": 1}] * 4 * THREADS


def test_what_cannot_be_read_is_told(reading: Reading) -> None:
    with pytest.raises(ZeroDivisionError):
        reading.at_once("good and bad", {"good": lambda: 1, "bad": lambda: 1 // 0})


def test_what_was_read_at_once_serves_all_who_ask_for_a_moment(reading: Reading) -> None:
    read: list[int] = []
    asks = {"one": lambda: read.append(1), "two": lambda: read.append(2)}
    told = reading.at_once("page", asks)
    told["one"] = None
    assert reading.at_once("page", asks) == {"one": None, "two": None}
    assert sorted(read) == [1, 2]
    reading.forget()
    reading.at_once("page", asks)
    assert sorted(read) == [1, 1, 2, 2]
