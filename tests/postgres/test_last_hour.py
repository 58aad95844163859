"""What ended in the last hour is counted exactly, from the minutes that are counted and the rows around them."""

from __future__ import annotations

from datetime import datetime

import pytest

from celeriac import Celeriac
from celeriac.repair import minutes, sweep
from tests.postgres.finished import live_worker, registered
from tests.processes import Rows

#: Five a second for a hundred minutes, one in seven failed, one in fourteen of them after a retry.
PAST = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, started_at,
    completed_at, retry_count, tries, max_rounds, losses, created_at, max_retries)
SELECT nextval('celeriac.tasks_id_seq'), 'past-' || i, 'work', '',
    CASE WHEN i % 7 = 0 THEN 'failed' ELSE 'completed' END,
    0, at, '[]', '{}', at, at, CAST(i % 14 = 0 AS integer), 1, 1, 0, at, 3
FROM generate_series(1, 30000) i, LATERAL (SELECT now() - i * interval '200 ms' AS at) AS past
"""

# In one statement, so that both mean the same hour.
TOLD_AND_THERE = """
SELECT h.completed, h.failed, CAST(round(CAST(h.retry_success_rate AS numeric), 3) AS float), there.*
FROM celeriac.last_hour('work') AS h, (
    SELECT count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE status = 'failed')
    FROM celeriac.history WHERE role = 'work' AND completed_at > statement_timestamp() - interval '1 hour') AS there
"""


def test_it_is_the_same_whether_or_not_minutes_are_counted(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minutes, "LAG", -1.0)
    registered(rows, "work", keep=86_400)
    rows(PAST)
    assert_exact(rows)
    for counted in (200, 40, 20, 0):  # ago, in minutes: none of the hour, some of it, all that are over
        at: datetime = rows.one("SELECT date_trunc('minute', now()) - :counted * interval '1 minute'", counted=counted)
        rows("UPDATE minutes_until SET until = least(until, :at), seen_at = :at", at=at)
        sweep(app, "minutes")
        assert_exact(rows)
    rows("UPDATE minutes SET failed = failed + 1 WHERE minute = date_trunc('minute', now()) - interval '45 minutes'")
    (told,) = rows(TOLD_AND_THERE)
    assert told[1] == told[4] + 1, "a minute that is counted is not read again from its rows"


def assert_exact(rows: Rows) -> None:
    (told,) = rows(TOLD_AND_THERE)
    assert told[:2] == told[3:]


def test_fewer_than_rates_are_of_need_no_minute(app: Celeriac, rows: Rows) -> None:
    registered(rows, "work", keep=86_400)
    rows(PAST.replace("30000", "4500"))
    rows("INSERT INTO minutes (role, minute, failed) SELECT 'work', date_trunc('minute', now()) - interval '9 min', 5")
    rows("UPDATE minutes_until SET until = date_trunc('minute', now())")
    assert_exact(rows)


#: So many tasks of a ticket, one ended each second since it began.
TICKET = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, worker_id,
    worker_pid, started_at, completed_at, retry_count, tries, max_rounds, losses, created_at, max_retries)
SELECT nextval('celeriac.tasks_id_seq'), gen_random_uuid(), 'work', '', 'completed', 0, begun, '[]', '{}', 'w', 1,
    begun, begun + i * interval '1 second', 0, 1, 1, 0, begun, 3
FROM generate_series(1, :n) i, LATERAL (SELECT now() - :ago * interval '1 second' AS begun) AS ticket
"""

AVERAGE = "SELECT run_seconds FROM celeriac.last_hour('work')"


@pytest.mark.parametrize(("resources", "seconds"), [("{}", 1.0), ('{"shares_process": true}', 25.5)])
def test_tasks_of_a_ticket_ran_one_by_one_unless_their_slots_share_a_process(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch, resources: str, seconds: float
) -> None:
    """The rates, what a minute has and what is summed for metrics are the same."""
    monkeypatch.setattr(minutes, "LAG", -1.0)
    registered(rows, "work", keep=86_400)
    live_worker(rows, "w", resources=resources)
    rows(TICKET.replace("now()", "date_trunc('minute', now())"), n=50, ago=120)
    assert rows.one(AVERAGE) == pytest.approx(seconds)
    rows("UPDATE minutes_until SET until = date_trunc('minute', now()) - interval '9 minutes', seen_at = now()")
    sweep(app, "minutes")
    assert rows.one("SELECT run_seconds / completed FROM minutes_in_all") == pytest.approx(seconds)


@pytest.mark.parametrize(("n", "ago"), [(6000, 6000), (5400, 5500)])
def test_of_a_ticket_part_of_which_is_too_old_the_rest_counts(rows: Rows, n: int, ago: int) -> None:
    """More than the newest 5,000, or than an hour: what ended before that took none of the time after it."""
    registered(rows, "work", keep=86_400)
    rows(TICKET, n=n, ago=ago)
    assert rows.one(AVERAGE) == pytest.approx(1.0, rel=0.01)
