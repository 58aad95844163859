"""Whatever a handler does is its own attempt's end, once and by its name; its worker and its neighbours go on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from types import ModuleType

import pytest

from celeriac import Celeriac
from tests.end_to_end import odd
from tests.end_to_end.conftest import beside
from tests.processes import Rows, Running, until

POOLS = ["prefork", "solo", "threads", "gevent", "asyncio"]

QUEUES = "odd,traced,fine,judged,judged_on_loop,awaited,hooked"

ENDED = "SELECT task_id, status, losses, error_message FROM history"

#: What wrote through its session, and may have.
WROTE = {"caught in a savepoint", "driver commits", "by itself"}


@pytest.fixture
def app(shop: ModuleType, rows: Rows) -> Iterator[Celeriac]:
    """The odd tasks' app on this test's servers."""
    with beside(shop, odd.app) as app:
        rows("CREATE TABLE once (n int UNIQUE)")
        yield app


def ended(rows: Rows, calls: Collection[tuple[str, str]]) -> dict[tuple[str, str], tuple[object, ...]]:
    """What became of a call each, by role and way."""
    roles: dict[str, list[str]] = {}
    for role, way in calls:
        roles.setdefault(role, []).append(way)
    ids = {
        result.id: (role, way)
        for role, ways in roles.items()
        for way, result in zip(ways, odd.app.tasks[role].bulk([{"way": way} for way in ways]), strict=True)
    }
    with suppress(AssertionError):  # those that did not end are named with what is unexpected
        until(
            lambda: rows.one("SELECT count(*) FROM history WHERE task_id = ANY (:ids)", ids=[*ids]) == len(ids), "them"
        )
    found = {task_id: tuple(row) for task_id, *row in rows(ENDED + " WHERE task_id = ANY (:ids)", ids=[*ids])}
    return {call: found.get(task_id, ("unfinished", 0, None)) for task_id, call in ids.items()}


def unexpected(became: dict[tuple[str, str], tuple[object, ...]]) -> dict[tuple[str, str], tuple[object, ...]]:
    """Those that did not end as they should."""
    return {
        call: (*end, str(error)[:300])
        for call, (*end, error) in became.items()
        if not is_as_expected(call, *end, error)
    }


def is_as_expected(call: tuple[str, str], status: object, losses: object, error: object) -> bool:
    expected, text = odd.EXPECTED[call]
    said = error is None if text is None else str(error).startswith(text.replace("ROLE", call[0]))
    return (status, losses) == (expected, 0) and said


#: By day each way of having slots once: a process, a thread, a coroutine.
AS_OTHERS = ("solo", "gevent")
BY_NIGHT = pytest.mark.nightly("a worker more that runs 220 tasks; solo has prefork's way, gevent threads' of them")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("pool", [pytest.param(pool, marks=BY_NIGHT if pool in AS_OTHERS else ()) for pool in POOLS])
@pytest.mark.usefixtures("app")
def test_whatever_a_handler_does_is_its_own_end_and_nobody_elses(
    worker: Callable[..., Running], rows: Rows, pool: str
) -> None:
    running = worker("-P", pool, "-c", "3", "-Q", QUEUES, module="tests.end_to_end.odd")
    before = running.children()
    last = [(role, way) for role in ("odd", "traced") for way in odd.PROCESS]
    became = ended(rows, odd.EXPECTED.keys() - last)
    wrote = rows("SELECT task_id FROM ran WHERE what = 'wrote'")
    became |= ended(rows, last)
    assert unexpected(became) == {}
    names = dict(rows("SELECT task_id, kwargs ->> 'way' FROM history"))
    assert {names[task_id] for (task_id,) in wrote} == WROTE
    assert odd.fine.delay(7).get(timeout=20) == 7
    assert running.process.poll() is None
    assert running.children() == before
    assert running.stop() == 0
