"""Which failures are the same: what differs from task to task does not count."""

from __future__ import annotations

import pytest

from celeriac.insights.failures.fingerprints import own_frame
from celeriac.store.messages import in_lines, pattern_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTPError: 502 of https://a.b/7", "HTTPError: 503 of https://a.b/12"),
        ("KeyError: 'acme'", "KeyError: 'a new one'"),
        ('no store "7 Leaves" in `x`', 'no store "Green" in `yy`'),
        ("<Store at 0x7f33dead>", "<Store at 0x55aa10>"),
        ("row 9f1c2d3e4a5b is gone", "row 0a0a0a0a0a0a0a is gone"),
        ("task 3d7c0f9a-6c1b-4f0e-9d5a-aaaabbbbcccc", "task 00000000-1111-2222-3333-444455556666"),
        ("took 1.5 s, at 10:48:00", "took 12 s, at 9:01"),
    ],
)
def test_what_differs_from_task_to_task_is_left_out(one: str, other: str) -> None:
    assert pattern_of(one) == pattern_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("it can't be read", "it can't be written"), ("deadbeef", "facade"), ("TypeError: 'x'", "KeyError: 'x'")],
)
def test_words_are_not(one: str, other: str) -> None:
    assert pattern_of(one) != pattern_of(other)


def test_an_apostrophe_quotes_nothing() -> None:
    assert pattern_of("it can't, and isn't") == "it can't, and isn't"


TRACEBACK = """Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/celery/app/trace.py", line 453, in trace_task
    R = retval = fun(*args, **kwargs)
  File "/srv/shop/tasks/stores.py", line 41, in resync
    fetch(store)
  File "/srv/shop/outside/dutchie.py", line 9, in fetch
    return get(url)
  File "/srv/venv/lib/python3.12/site-packages/httpx/_api.py", line 1, in get
    raise HTTPError(url)
httpx.HTTPError: 502
"""


def test_the_innermost_of_ones_own_frames_is_told_without_its_line() -> None:
    assert own_frame(TRACEBACK) == "dutchie.py:fetch"
    assert own_frame(TRACEBACK.replace("/srv/shop", "/usr/lib/python3.12")) is None
    assert own_frame(None) is None


def test_reasons_of_a_kind_are_one_line() -> None:
    assert in_lines({}) == []
    assert in_lines({7: "it is running"}) == ["7: it is running"]
    reasons = {n: f"task {n + 10} has its unique key 'store {n}'" for n in range(5)} | {9: "it is running"}
    assert in_lines(reasons) == ["5 (0, 1, 2, …): task 10 has its unique key 'store 0'", "9: it is running"]
