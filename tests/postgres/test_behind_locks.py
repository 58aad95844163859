"""Behind somebody's lock the doctor and status show all that can still be read, and leave out the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac import Celeriac
from celeriac.cli.status import _lines, overview
from celeriac.doctor import examine
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued
from tests.postgres.test_blockers import psql
from tests.processes import Rows, until

Ways = Callable[[], tuple[set[str], set[str], str]]


@pytest.fixture
def ways(app: Celeriac) -> Ways:
    """What doctor names, the checks it has made, and what status prints, once it has named the lock."""

    def ask() -> tuple[set[str], set[str], str]:
        until(
            lambda: [one.name for one in overview(app)["wrong"]][:1] == ["locked_table"],
            "it to be open for five seconds",
        )
        found = examine(app)
        assert (found[0].check, found[0].runbook) == ("locks", "docs/runbooks/locked_table.md")
        return (
            {one.check for one in found if not one.ok},
            {one.check for one in found},
            "\n".join(_lines(overview(app))),
        )

    return ask


@pytest.fixture(autouse=True)
def unserved(app: Celeriac, database: Database, rows: Rows) -> None:
    enqueued(database, new_task("unserved"))


LEFT_OUT = {
    "LOCK TABLE celeriac.tasks IN SHARE MODE": set(),
    "LOCK TABLE celeriac.workers IN EXCLUSIVE MODE": set(),
    "LOCK TABLE celeriac.beats": {"beat"},
    "CREATE INDEX slow ON celeriac.dead_letters (name)": set(),
}


#: Five seconds each; by day a lock that hides something, and one that hides nothing.
BY_NIGHT = {"LOCK TABLE celeriac.workers IN EXCLUSIVE MODE", "CREATE INDEX slow ON celeriac.dead_letters (name)"}


@pytest.mark.parametrize(
    "lock",
    [pytest.param(one, marks=pytest.mark.nightly("another table") if one in BY_NIGHT else ()) for one in LEFT_OUT],
)
def test_what_can_be_read_behind_a_lock_is_named(app: Celeriac, database_url: str, ways: Ways, lock: str) -> None:
    before = {one.check for one in examine(app)}
    with psql(database_url, lock):
        wrong, made, printed = ways()
    assert wrong == {"locks", "roles"}
    assert before - made == LEFT_OUT[lock]
    assert "wrong     no_worker unserved: 1 tasks may start" in printed
    assert "pending 1  claimed 0" in printed
    assert ("unknown   beats: " in printed) == bool(LEFT_OUT[lock])


def test_what_cannot_be_read_behind_a_lock_is_left_out(app: Celeriac, database_url: str, ways: Ways) -> None:
    with psql(database_url, "LOCK TABLE celeriac.tasks"):
        wrong, made, printed = ways()
    assert wrong == {"locks"}
    assert {"postgres", "redis", "workers", "beat", "connections"} <= made
    assert "roles" not in made
    assert "unknown   tasks, roles: somebody's open transaction has locked what they read" in printed
    assert "beat      none ticks" in printed
