"""A schedule whose name no surface would take any more goes on until somebody renames it."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import DBAPIError

from celeriac.schedules.timetable import Timetable
from tests.postgres.ticks.conftest import TASKS, Put, tick_all
from tests.processes import Rows

#: As a beat of an earlier release installs its beat config at each start.
INSTALLED = """INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression) VALUES (:name, 'work', '@daily')
ON CONFLICT (name) DO UPDATE SET cron_expression = excluded.cron_expression RETURNING name"""


def test_a_schedule_from_before_the_rule_of_names_is_installed_and_ticked(
    timetable: Timetable, put: Put, rows: Rows
) -> None:
    put("nightly")
    rows("ALTER TABLE celeriac.scheduled_jobs DISABLE TRIGGER scheduled_jobs_named")
    rows("UPDATE celeriac.scheduled_jobs SET name = 'nightly '")
    rows("ALTER TABLE celeriac.scheduled_jobs ENABLE TRIGGER scheduled_jobs_named")
    tick_all(timetable)
    assert [task.partition("@")[0] for (task,) in rows(TASKS)] == ["nightly "]
    assert rows(INSTALLED, name="nightly ") == [("nightly ",)]
    for refused in ("weekly ", ".", "a\tb"):
        with pytest.raises(DBAPIError, match="give a name of 1 to 200 printable characters"):
            rows(INSTALLED, name=refused)
    with pytest.raises(DBAPIError, match="give a name of 1 to 200 printable characters"):
        rows("UPDATE celeriac.scheduled_jobs SET name = 'weekly '")
    rows("UPDATE celeriac.scheduled_jobs SET name = 'nightly'")
