"""A role that is paused for a time is resumed by itself, by a beat or a worker, and by nobody before."""

from __future__ import annotations

import pytest

from celeriac import Celeriac, insights
from celeriac.errors import BadValue
from celeriac.operate import policies
from celeriac.repair import sweep
from celeriac.repair.vital import VITAL
from celeriac.roles.bounds import LONGEST_DELAY
from celeriac.store.connections import Database
from tests.postgres.finished import registered
from tests.processes import Rows

PAUSED = "SELECT paused, paused_until IS NOT NULL FROM roles ORDER BY role"


def pause(database: Database, role: str, seconds: float | None = None) -> None:
    with database.transaction() as connection:
        policies.pause_role(connection, role, by="ann", seconds=seconds)


def test_it_is_resumed_once_its_time_is_over(app: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "for good", "for long", "soon")
    for role, seconds in (("for good", None), ("for long", 3_600), ("soon", 3_600)):
        pause(database, role, seconds)
    assert sweep(app, "resume") == 0
    rows("UPDATE roles SET paused_until = now() - interval '1 s' WHERE role = 'soon'")
    assert sweep(app, "resume") == 1
    assert rows(PAUSED) == [(True, False), (True, True), (False, False)]
    assert "resume" in VITAL, "a worker does it where no beat is"


def test_whoever_resumes_it_before_or_pauses_it_for_good_ends_the_time(database: Database, rows: Rows) -> None:
    registered(rows, "work")
    pause(database, "work", 60)
    with database.reading() as connection:
        (depth,) = insights.depth(connection, "work")
    assert (depth.paused, depth.paused_until) == (True, rows.one("SELECT paused_until FROM roles"))
    pause(database, "work")
    assert rows(PAUSED) == [(True, False)]
    pause(database, "work", 60)
    with database.transaction() as connection:
        policies.resume_role(connection, "work", by="ann")
    assert rows(PAUSED) == [(False, False)]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), LONGEST_DELAY * 2])
def test_a_time_that_is_none_is_refused(database: Database, rows: Rows, seconds: float) -> None:
    registered(rows, "work")
    with pytest.raises(BadValue, match="seconds"):
        pause(database, "work", seconds)
