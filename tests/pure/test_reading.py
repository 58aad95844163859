"""What a page needs is read at once, by threads and by whoever waits for them."""

from __future__ import annotations

import threading

import pytest

from celeriac import Celeriac
from celeriac.dashboard.reading import THREADS, Reading


@pytest.fixture
def reading() -> Reading:
    return Reading(Celeriac("reading"))


def test_two_readings_are_under_way_at_the_same_time(reading: Reading) -> None:
    both = threading.Barrier(2)
    assert set(reading.at_once({"one": lambda: both.wait(30), "other": lambda: both.wait(30)}).values()) == {
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
    others = threading.Thread(target=reading.at_once, args=(slow,))
    others.start()
    for _ in slow:
        assert busy.acquire(timeout=30)
    mine = threading.current_thread()
    read = reading.at_once(dict.fromkeys("abc", threading.current_thread))
    go.set()
    others.join(30)
    assert read == dict.fromkeys("abc", mine)


def test_one_may_read_at_once_what_it_is_made_of(reading: Reading) -> None:
    def parts() -> dict[str, int]:
        return reading.at_once({"one": lambda: 1, "two": lambda: 2})

    found = reading.at_once({str(n): parts for n in range(4 * THREADS)})
    assert list(found.values()) == [{"two": 2, "one": 1}] * 4 * THREADS


def test_what_cannot_be_read_is_told(reading: Reading) -> None:
    with pytest.raises(ZeroDivisionError):
        reading.at_once({"good": lambda: 1, "bad": lambda: 1 // 0})


def test_after_an_error_nothing_is_read_for_nobody(reading: Reading) -> None:
    go, busy = threading.Event(), threading.Semaphore(0)

    def slowly() -> None:
        busy.release()
        assert go.wait(30)

    others = threading.Thread(target=reading.at_once, args=({str(n): slowly for n in range(THREADS)},))
    others.start()
    for _ in range(THREADS):
        assert busy.acquire(timeout=30)
    read: list[int] = []
    with pytest.raises(ZeroDivisionError):
        reading.at_once({"never": lambda: read.append(1), "bad": lambda: 1 // 0})
    go.set()
    others.join(30)
    assert reading.at_once({"next": lambda: 1}) == {"next": 1}
    assert read == []
