"""Beats side by side on one schedule, killed and replaced while it ticks, and what came of each of its instants."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from tests import processes
from tests.processes import PATIENCE, ROOT, Rows, Running

Sized = Callable[[int, int], int]

EVERY = timedelta(milliseconds=50)
TOCK = 'enqueuing("tock", "@every 50ms", "tock", misfire="all", overlap="allow")'
MODULE = "tests.faults.clockwork"

#: What was enqueued, even if its row is gone: without it a second task of an instant could pass for the first.
RECORD = """
CREATE TABLE enqueued (task_id text, role text, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO enqueued (task_id, role) VALUES (new.task_id, new.role); RETURN NULL; END $$;
CREATE TRIGGER record AFTER INSERT ON celeriac.tasks FOR EACH ROW EXECUTE FUNCTION record();
"""
FORGET = "DELETE FROM worker_tasks WHERE task_id LIKE :name || '@%' AND created_at < now() - interval '0.1 s'"
INSTANTS = """
SELECT split_part(task_id, '@', 2)::timestamptz AS instant,
    extract(epoch FROM at - split_part(task_id, '@', 2)::timestamptz)::float8
FROM enqueued WHERE task_id LIKE :name || '@%' ORDER BY instant
"""


class Ticks:
    """What was enqueued of one schedule: its instants, and how late each was (seconds, on the database's clock)."""

    def __init__(self, rows: Rows, name: str) -> None:
        found = rows(INSTANTS, name=name)
        self.instants: list[datetime] = [instant for instant, _ in found]
        self.lateness = sorted(late for _, late in found)

    @property
    def steps(self) -> list[timedelta]:
        return [after - before for before, after in pairwise(self.instants)]

    def assert_each_once(self, every: timedelta) -> None:
        wrong = [step for step in self.steps if step != every]
        assert self.instants, "nothing was enqueued"
        assert not wrong, f"{len(wrong)} of {len(self.steps)} steps are not {every}: {wrong[:5]}"

    def assert_changes_once(self, before: timedelta, after: timedelta) -> None:
        """From one period to the other, each instant once: the new series begins a period after the change."""
        at = next(n for n, step in enumerate(self.steps) if step != before)
        assert timedelta(0) < self.steps[at] <= before + after
        assert set(self.steps[at + 1 :]) == {after}

    def late(self, share: float) -> float:
        return self.lateness[min(len(self.lateness) - 1, math.ceil(share * len(self.lateness)))]

    def __str__(self) -> str:
        figures = f"p50 {self.late(0.5) * 1000:.1f} ms, p99 {self.late(0.99) * 1000:.1f} ms"
        return f"{len(self.instants)} ticks, late {figures}, at most {self.lateness[-1] * 1000:.1f} ms"


@dataclass
class Fleet:
    """Beats of the clockwork app. Which of them is killed is drawn from a fixed seed."""

    database_url: str
    redis_url: str
    folder: Path
    beats: list[Running] = field(default_factory=list)
    kills: int = 0

    def times(self, *entries: str) -> None:
        """What stands in `times.py` from the next start of a beat on."""
        lines = [
            "from celeriac.schedules import enqueuing",
            "SCHEDULES = [",
            *(f"    {entry}," for entry in entries),
            "]",
        ]
        (self.folder / "times.py").write_text("\n".join(lines) + "\n")

    def __post_init__(self) -> None:
        self._chance, self._number, self._stack = random.Random(7), itertools.count(), ExitStack()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, size: int = 1) -> None:
        environ = {"PYTHONPATH": f"{self.folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        for _ in range(size):
            log = self.folder / f"beat-{next(self._number)}.log"
            beat = processes.beat(MODULE, self.database_url, self.redis_url, log, environ)
            self.beats.append(self._stack.enter_context(beat))

    def replace_one(self) -> bool:
        """SIGKILL to one while another ticks on, and a new one in its place at once."""
        ticking = [beat for beat in self.beats if "schedules in the beat config" in beat.printed()]
        if len(ticking) < 2:
            return False
        victim = self._chance.choice(ticking)
        victim.kill()
        self.beats.remove(victim)
        self.kills += 1
        self.start()
        return True

    def restart(self) -> None:
        """All of them, in good order: SIGTERM, and as many anew."""
        size = len(self.beats)
        for beat in self.beats:
            beat.stop()
        self.beats.clear()
        self.start(size)

    def assert_none_ended(self) -> None:
        ended = [beat.printed()[-3000:] for beat in self.beats if beat.process.poll() is not None]
        assert not ended, ended[0]


def drive(rows: Rows, name: str, look: Callable[[int], bool]) -> None:
    """Tells `look` how many ticks are enqueued, again and again, until it has seen enough."""
    done, moved = 0, time.monotonic()
    while not look(done):
        before, done = done, _count(rows, name, done)
        moved = time.monotonic() if done > before else moved
        assert time.monotonic() - moved < PATIENCE, f"no tick for {PATIENCE:g} s after {done}"
        time.sleep(0.01)


def _count(rows: Rows, name: str, before: int) -> int:
    """What is done goes, as by a worker: no row keeps an instant from being enqueued again. Outlasts a restart."""
    try:
        rows(FORGET, name=name)
        return int(str(rows.one("SELECT count(*) FROM enqueued WHERE task_id LIKE :name || '@%'", name=name)))
    except DBAPIError:
        return before
