"""Beats are killed and servers go away: no instant is missing, and none is enqueued twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from celeriac import local
from celeriac.store.migrate import migrate
from tests.conftest import APPLICATION
from tests.faults.beats import EVERY, RECORD, TOCK, Fleet, Sized, Ticks, drive
from tests.processes import Rows

#: Ticks between two kills.
KILL_EVERY = 5


class Killer:
    """Every few ticks one of the beats is killed and another takes its place."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.last = fleet, 0

    def __call__(self, done: int) -> None:
        if done >= self.last + KILL_EVERY and self.fleet.replace_one():
            self.last = done


@pytest.mark.parametrize("beats", [pytest.param(2, marks=pytest.mark.nightly("by day three of them")), 3])
def test_beats_killed_every_few_ticks_enqueue_each_instant_once(
    beats: int, fleet: Fleet, recorded: Rows, sized: Sized
) -> None:
    ticks, kills, killer = sized(200, 40), sized(20, 2), Killer(fleet)
    fleet.times(TOCK)
    fleet.start(beats)

    def look(done: int) -> bool:
        killer(done)
        return done >= ticks and fleet.kills >= kills

    drive(recorded, "tock", look)
    fleet.assert_none_ended()
    found = Ticks(recorded, "tock")
    print(f"{beats} beats, {fleet.kills} killed: {found}")
    found.assert_each_once(EVERY)


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[local.PostgresServer]:
    server = local.PostgresServer(tmp_path / "postgres")
    server.start()
    engine = create_engine(server.url)
    migrate(engine, APPLICATION)
    engine.dispose()
    yield server
    server.stop()


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[local.ValkeyServer]:
    server = local.ValkeyServer(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


class Faults:
    """Redis is stopped and is back so many seconds later; meanwhile and after, Postgres is ended and started again."""

    def __init__(self, postgres: local.PostgresServer, valkey: local.ValkeyServer, ticks: int, seconds: float) -> None:
        self.postgres, self.valkey, self.seconds = postgres, valkey, seconds
        self.back, self.last = 0.0, 0
        self.waiting = [(ticks // 8, self._stop_redis), (ticks // 4, self._restart), (ticks // 2, self._crash)]

    def __call__(self, done: int) -> None:
        if self.back and time.monotonic() >= self.back:
            self.valkey.start()
        if self.waiting and done >= self.waiting[0][0]:
            self.waiting.pop(0)[1]()
            self.last = done

    def over(self, done: int) -> bool:
        """And the beats have found their way back."""
        return not self.waiting and self.valkey.running and done >= self.last + KILL_EVERY

    def _stop_redis(self) -> None:
        self.valkey.stop()
        self.back = time.monotonic() + self.seconds

    def _restart(self) -> None:
        self.postgres.stop()
        self.postgres.start()

    def _crash(self) -> None:
        self.postgres.kill()
        self.postgres.start()


@pytest.mark.sized("beats", full=[2, 3], short=[2])
def test_so_do_they_while_postgres_restarts_twice_and_redis_is_gone(
    beats: int, postgres: local.PostgresServer, valkey: local.ValkeyServer, tmp_path: Path, sized: Sized
) -> None:
    ticks, seconds = sized(200, 40), sized(5, 1)
    rows = Rows(postgres.url)
    rows(RECORD)
    with Fleet(postgres.url, valkey.url, tmp_path) as fleet:
        fleet.times(TOCK)
        fleet.start(beats)
        killer, faults = Killer(fleet), Faults(postgres, valkey, ticks, seconds)

        def look(done: int) -> bool:
            killer(done)
            faults(done)
            return done >= ticks and faults.over(done) and fleet.kills >= sized(5, 1)

        drive(rows, "tock", look)
        fleet.assert_none_ended()
    found = Ticks(rows, "tock")
    rows.close()
    print(f"{beats} beats, {fleet.kills} killed, Postgres restarted twice, Redis gone for {seconds} s: {found}")
    found.assert_each_once(EVERY)
