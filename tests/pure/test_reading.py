"""What a page needs is read at once, by threads and by whoever waits for them."""

from __future__ import annotations

import threading
from itertools import count
from types import SimpleNamespace

import pytest

from celeriac import Celeriac
from celeriac.dashboard import reading as reading_module
from celeriac.dashboard.reading import THREADS, Kept, Reading


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


def test_all_that_was_read_is_read_anew_at_the_same_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a page of many figures is rendered once a second, and not whenever one of them is read."""
    now = [100.2]
    monkeypatch.setattr(reading_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    first, second = Kept(), Kept()
    read = {first: count(), second: count()}

    def seen(at: float) -> tuple[int, int]:
        now[0] = at
        return first.get(read[first].__next__), second.get(read[second].__next__)

    assert first.get(read[first].__next__) == 0
    assert [seen(at) for at in (100.7, 100.9, 101.1, 101.9, 102.1)] == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2)]


def test_what_takes_long_is_served_for_many_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.2]
    monkeypatch.setattr(reading_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    kept, asked = Kept(), []

    def slowly() -> None:
        asked.append(now[0])
        now[0] += 0.5

    for at in (100.2, 103.0, 105.0, 105.3):
        now[0] = at
        kept.get(slowly)
    assert asked == [100.2]
    now[0] = 106.1
    kept.get(slowly)
    assert asked == [100.2, 106.1]
