"""Schedules whose rows somebody's open transaction holds: passes and sweeps run all the same, once a turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celeriac import Celeriac
from celeriac.schedules.beat import Scheduler
from celeriac.schedules.tick import HELD_FOR
from tests.processes import Rows, until

#: As an operator has it who forgets to commit.
OPEN = "UPDATE celeriac.scheduled_jobs SET enabled = false"

CLAIMED = "SELECT count(*) FROM tickets WHERE role = 'held'"


@pytest.fixture
def beat(app: Celeriac, rows: Rows) -> Iterator[Scheduler]:
    @app.task(role="held", name="held", prompt=False, every=60, shared=False)
    def held() -> None: ...

    beat = Scheduler(app)
    beat.tick()
    until(lambda: not beat.acts.under_way(), "the first passes and sweeps to end")
    yield beat
    beat.close()


@pytest.mark.usefixtures("redis_url")
def test_a_role_that_only_beat_dispatches_does_not_stand_still(app: Celeriac, beat: Scheduler, rows: Rows) -> None:
    app.tasks["held"].delay()
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() - :ago * interval '1 s'", ago=HELD_FOR + 1)
    with app.database.transaction() as operator:
        operator.exec_driver_sql(OPEN)
        beat.past_locks_at = 0.0  # it looks each second
        beat.tick()
        until(lambda: rows.one(CLAIMED) == 1, "the pass, although its schedule is locked")
        assert {"batcher held", "sweep rescue"} <= {*beat.acts.running}
        until(lambda: not beat.acts.under_way(), "all to end")
        again = beat.held_until["batcher held"]
        beat.past_locks_at = 0.0
        beat.tick()
        assert beat.held_until["batcher held"] == again, "it has had its turn"
