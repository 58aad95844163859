"""The witness and what is read from its notes, on a real database: an overlap must show."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from celeriac.store.connections import Database
from demo.instasites import evidence, witness
from demo.instasites.plan import Customer
from demo.instasites.verdicts import none_twice_at_once, overlapping
from sandbox import start
from tasks.app import app
from tasks.instasites import build
from tests.systems.stack import on_servers


@pytest.fixture
def watched(database: Database, database_url: str, redis_url: str) -> Iterator[Database]:
    with database.statement() as connection:
        connection.execute(evidence.RUNS_TABLE)
    with on_servers(app, {"DATABASE_URL": database_url, "REDIS_URL": redis_url}):
        yield database


def began(site: int) -> None:
    witness.began(task=build, kwargs={"instasite_id": site})


def seen(database: Database) -> evidence.Evidence:
    with database.statement() as connection, start() as outside:
        return evidence.gather(connection, outside, {1: Customer("large", "large", 1)})


def test_two_runs_of_one_site_at_one_time_are_an_overlap(watched: Database) -> None:
    began(7)
    began(7)
    witness.ended(task=build)
    witness.ended(task=build)
    assert overlapping(seen(watched).runs) == {7}
    assert not none_twice_at_once(seen(watched)).holds


def test_one_after_the_other_and_two_sites_at_one_time_are_none(watched: Database) -> None:
    for _ in range(2):
        began(7)
        began(8)
        witness.ended(task=build)
        witness.ended(task=build)
    assert overlapping(seen(watched).runs) == set()


def test_a_run_is_over_once_its_process_is_gone_and_not_before(watched: Database) -> None:
    with subprocess.Popen(["sleep", "60"]) as killed:
        with watched.statement() as connection:
            connection.execute(text("INSERT INTO demo_runs (site, pid) VALUES (7, :pid)"), {"pid": killed.pid})
        began(7)
        witness.ended(task=build)
        assert overlapping(seen(watched).runs) == {7}
        killed.kill()
    with watched.statement() as connection:
        connection.execute(text("DELETE FROM demo_runs WHERE ended IS NOT NULL"))
    began(7)
    witness.ended(task=build)
    assert overlapping(seen(watched).runs) == set()


def test_other_tasks_are_not_watched(watched: Database) -> None:
    witness.began(task=app.tasks["instasite_analytics"], kwargs={"instasite_id": 7})
    witness.ended(task=app.tasks["instasite_analytics"])
    assert seen(watched).runs == []
