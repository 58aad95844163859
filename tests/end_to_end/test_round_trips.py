"""A server in another region: each answer takes its time, so what waits for answers one after the other is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import make_url

from celeriac import Celeriac, Settings
from tests import processes
from tests.end_to_end.conftest import declare_shop
from tests.end_to_end.trips import Trips, Way, way
from tests.processes import Rows, until

#: A worker waits for so many answers until it is ready, those that connecting takes among them: of Postgres until its
#: roles are registered, and until it is; of Redis in all, by threads that wait side by side.
REGISTERED, REPORTED, OF_REDIS = 10, 7, 40

#: The same for a task, in its process; and for a pass.
TASK, PASS = 3, 9

REPORT, REGISTER = b"INSERT INTO celeriac.workers", b"INSERT INTO celeriac.role_limits"

DONE = "SELECT FROM worker_tasks WHERE status = 'completed' AND task_id = :task"


@pytest.fixture
def ways(database_url: str, redis_url: str) -> Iterator[tuple[Way, Way]]:
    """To Postgres and to Redis."""
    with ExitStack() as stack:
        server, broker = make_url(database_url), make_url(redis_url)
        folder = server.query.get("host")
        at = {"socket": f"{folder}/.s.PGSQL.5432"} if folder else {"host": server.host, "port": server.port or 5432}
        yield (
            stack.enter_context(way(**at)),  # type: ignore[arg-type]
            stack.enter_context(way(host=str(broker.host), port=broker.port or 6379)),
        )


def through(url: str, to: Way) -> str:
    led = make_url(url).set(host="127.0.0.1", port=to.port).difference_update_query(["host", "port"])
    return led.render_as_string(hide_password=False)


def where(to: Way, what: bytes) -> tuple[Trips, int]:
    """The first connection that said it, and after how many trips."""
    return next((one, n) for one in to.connections for n, said in enumerate(one.said, 1) if what in said)


@pytest.mark.parametrize("roles", [pytest.param("1", marks=pytest.mark.nightly("by day forty of them")), "40"])
def test_a_start_waits_for_few_answers_however_many_roles_it_serves(
    ways: tuple[Way, Way], database_url: str, redis_url: str, tmp_path: Path, roles: str
) -> None:
    urls = (through(database_url, ways[0]), through(redis_url, ways[1]))
    with processes.worker("tests.end_to_end.idle", *urls, tmp_path / "log", environ={"ROLES": roles}):
        postgres, redis = ways
        assert where(postgres, REGISTER)[1] <= REGISTERED
        assert where(postgres, REPORT)[1] <= REPORTED
        assert redis.trips() <= OF_REDIS


def test_a_task_waits_for_few_answers(
    ways: tuple[Way, Way], shop: ModuleType, database_url: str, redis_url: str, rows: Rows, tmp_path: Path
) -> None:
    urls = (through(database_url, ways[0]), through(redis_url, ways[1]))
    waited = []
    with processes.worker("tests.end_to_end.shop", *urls, tmp_path / "log", "-c", "1"):
        for _ in range(8):
            before = sum(len(one.said) for one in ways[0].connections if is_childs(one))
            task = shop.app.send_task("add", kwargs={"a": 1}).id
            until(lambda: rows(DONE, task=task), "it to be done")  # noqa: B023
            waited.append(sum(len(one.said) for one in ways[0].connections if is_childs(one)) - before)
    assert 0 < min(waited[2:]) <= TASK, "the first ones connect, prepare and measure"


def is_childs(one: Trips) -> bool:
    return any(b"celeriac.batchers" in said for said in one.said) and not any(REPORT in said for said in one.said)


def test_a_pass_waits_for_few_answers(
    ways: tuple[Way, Way], shop: ModuleType, database_url: str, redis_url: str
) -> None:
    settings = Settings(database_url=through(database_url, ways[0]), redis_url=redis_url)
    app = Celeriac("far", settings=settings, set_as_current=False)
    declare_shop(app)
    add = shop.app.roles.get("add").role
    try:
        for _ in range(2):
            shop.app.send_task("add", kwargs={"a": 1})
            before = ways[0].trips()
            assert len(app.dispatcher.run_pass(add).tickets) == 1
        assert ways[0].trips() - before <= PASS, "the first one connects"
    finally:
        app.publisher.close()
        app.database.dispose()
