"""docs/deploying.md, done: two releases at once under load, forwards and back, and nothing fails or runs twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import chain

from celeriac import Celeriac, Settings
from celeriac.doctor.deploying import against_database
from celeriac.store.migrate import migrate
from tests.end_to_end.releases import declare
from tests.processes import Rows, Running, until

MODULE = "tests.end_to_end.releases"

UNFINISHED = "SELECT count(*) FROM celeriac.tasks"
RELEASES = "SELECT DISTINCT what FROM ran WHERE n > :after"
NEWEST = "SELECT coalesce(max(n), 0) FROM ran"

#: So many calls of each kind a burst.
BURST = 3


class Caller:
    """A release's web server: it enqueues, and keeps what it was given for."""

    def __init__(self, release: str, settings: Settings) -> None:
        self.app = Celeriac(release, settings=settings, set_as_current=False)
        self.tasks = declare(self.app, release)
        self.ids: list[str] = []

    def burst(self) -> None:
        price, webhook = self.tasks["price"], self.tasks["webhook"]
        for shop in range(BURST):
            self.ids.append(price.delay(shop).id)
            self.ids.append(webhook.delay(shop).id)
            last = chain(price.s(shop), webhook.s())()
            self.ids += [last.parent.id, last.id]
            self.ids.append(self.app.send_task("webhook", args=(shop,)).id)

    def misfits(self) -> set[tuple[str, str]]:
        return {(one.kind, one.name) for one in against_database(self.app).misfits}


@pytest.fixture
def callers(database_url: str, redis_url: str) -> Iterator[dict[str, Caller]]:
    settings = Settings(database_url=database_url, redis_url=redis_url)
    callers = {release: Caller(release, settings) for release in ("old", "new")}
    yield callers
    for caller in callers.values():
        caller.app.close()


def test_two_releases_at_once_forwards_and_back(
    callers: dict[str, Caller], worker: Callable[..., Running], rows: Rows
) -> None:
    old, new = callers["old"], callers["new"]

    def start(release: str) -> Running:
        after = rows.one(NEWEST)
        started = worker("-c", "1", module=MODULE, RELEASE=release)

        def has_run() -> bool:
            old.burst()
            return (release,) in rows(RELEASES, after=after)

        until(has_run, f"the {release} release to run something")
        return started

    old.app.register_roles()
    old.burst()
    old_worker = start("old")
    old.burst()
    assert new.misfits() == set(), "the deploy may go on"
    migrate(new.app.database.engine)
    new_worker = start("new")
    old.burst()
    new.burst()
    assert old_worker.stop(60) == 0
    old.burst()
    until(lambda: rows.one(UNFINISHED) == 0, "the new release to do all that waits")

    new.burst()
    assert ("role gone", "hooks") in old.misfits(), "going back is checked as well"
    old_again = start("old")
    old.burst()
    until(lambda: old.misfits() == set(), "the new release to end what the old one cannot run")
    assert new_worker.stop(60) == 0
    until(lambda: rows.one(UNFINISHED) == 0, "the old release to do the rest")
    assert old_again.stop(60) == 0

    assert rows("SELECT status, count(*) FROM worker_tasks WHERE status <> 'completed' GROUP BY 1") == []
    assert rows.one("SELECT max(losses) FROM worker_tasks") == 0
    assert rows("SELECT task_id FROM ran GROUP BY 1 HAVING count(*) > 1") == []
    ran = {task_id for (task_id,) in rows("SELECT task_id FROM ran")}
    assert set(old.ids + new.ids) <= ran
    assert rows("SELECT what, role FROM ran GROUP BY 1, 2 ORDER BY 1, 2") == expected()


def expected() -> list[tuple[Any, ...]]:
    """Each release ran what it knows, the new one also what has its former name."""
    return [(r, role) for r, roles in (("new", ("hooks", "journal", "price", "webhook")), ("old", ("price", "webhook")))
            for role in roles]  # fmt: skip
