"""What fails now as it did not before is named within minutes, with its error, its beginning, its cost and its cure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as some

from celeriac import Celeriac
from celeriac.alerts.rules import RULES
from celeriac.cli import within_celery
from celeriac.doctor import examine
from celeriac.insights.failures.burning import CERTAIN, LEAST, Burning, burning, limit_of, window_of
from celeriac.insights.failures.failing_accounts import failing_accounts
from celeriac.insights.history.alerts import DAMAGE
from celeriac.insights.tasks.veil import veiled
from celeriac.repair import sweep
from celeriac.store.connections import Database
from tests.postgres.alerts import FIRES
from tests.postgres.finished import finished, live_worker, registered
from tests.processes import Rows

#: Attempts that failed and are tried again, one every `every` seconds up to `ago` seconds ago.
RETRIED = """
WITH hit AS (
    INSERT INTO worker_tasks (task_id, role, account, status, scheduled_for, created_at)
    SELECT gen_random_uuid(), :role, CASE WHEN :accounts > 0 THEN 'a' || n % greatest(:accounts, 1) ELSE '' END,
        'pending', now() + interval '1 hour', now() - (:ago + n * :every) * interval '1 second'
    FROM generate_series(1, :n) n RETURNING id, created_at
)
INSERT INTO task_events (task, role, at, kind, from_status, to_status, why)
SELECT id, :role, created_at, 'retry', 'running', 'pending', :why FROM hit
"""

#: The minutes of the day before, as they are counted.
PAST = """
INSERT INTO minutes (role, minute, completed, failed, retried)
SELECT :role, date_trunc('minute', now()) - n * interval '1 minute', :completed, :failed, :retried
FROM generate_series(:first, 1440) n
"""

SAYS = "HTTPError: 503 for https://hooks.example/orders/7"


def retried(rows: Rows, n: int, **more: Any) -> None:
    rows(RETRIED, **{"role": "webhook", "n": n, "ago": 1, "every": 0.5, "accounts": 3, "why": SAYS} | more)


def past(rows: Rows, **more: Any) -> None:
    rows(PAST, **{"role": "webhook", "completed": 100, "failed": 0, "retried": 1, "first": 6} | more)


@pytest.fixture
def system(rows: Rows) -> None:
    """A role that has worked for a day, and did until five minutes ago."""
    registered(rows, "webhook", "calm")
    live_worker(rows, queues='["webhook", "calm"]', concurrency=4)
    finished(rows, "webhook", n=2_500, ago=6)
    finished(rows, "calm", n=100, ago=0)
    rows("UPDATE minutes_until SET until = date_trunc('minute', now())")


def burns(database: Database, role: str | None = None) -> list[Burning]:
    with database.statement() as connection:
        return burning(connection, role)


@pytest.mark.usefixtures("system")
def test_an_endpoint_that_is_down_is_named_by_every_surface_and_leaves_once_it_answers(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    """270 failures in a row after 2,500 successes, all of them to be tried again: none has failed for good."""
    past(rows)
    retried(rows, 270)
    (one,) = burns(database)
    assert (one.role, one.failed, one.attempts, one.tasks, one.given_up, one.accounts) == (
        "webhook",
        270,
        270,
        270,
        0,
        3,
    )
    assert one.error == "HTTPError: # for https://hooks.example/orders/#"
    assert one.sentence.startswith("270 of 270 attempts failed in 5 min, 1.0% the day before, since ")
    assert ": «HTTPError: # for https://hooks.example/orders/#»; 270 tasks" in one.sentence
    assert ": «HTTPError: •••»; 270 tasks" in str(veiled({"says": one.sentence}))
    began = rows("SELECT min(at) FROM task_events")[0][0]
    assert one.since == began
    sweep(app, "alerts")
    ((name, subject),) = rows(FIRES)
    assert (name, subject) == ("fails_now", "webhook")
    ((says, severity),) = rows("SELECT says, severity FROM alerts")
    assert severity == "page"
    assert "270 tasks of 3 accounts are hit" in says
    found = [finding for finding in examine(app) if not finding.ok]
    assert found[0].check == "outcomes"
    assert found[0].says.startswith("webhook: 270 of 270 attempts failed")
    assert found[0].cure is not None
    assert "`celeriac roles pause webhook`" in found[0].cure
    finished(rows, "webhook", n=25, ago=0)
    assert burns(database) == []
    sweep(app, "alerts")
    assert rows(FIRES) == []


#: A success of each of these accounts, one after another, up to `ago` seconds ago.
WORKED = """
INSERT INTO worker_tasks (task_id, role, account, status, started_at, completed_at)
SELECT gen_random_uuid(), 'webhook', a, 'completed', now() - interval '10 minutes',
    now() - (:ago + n * 0.1) * interval '1 second'
FROM unnest(CAST(:accounts AS text[])) WITH ORDINALITY AS u (a, n)
"""


def test_an_outage_of_the_whole_role_names_no_account(app: Celeriac, database: Database, rows: Rows) -> None:
    """Each of the accounts had worked till then, none as long as another; two that were under way ended well."""
    registered(rows, "webhook")
    live_worker(rows, queues='["webhook"]')
    rows(WORKED, accounts=["a0", "a1", "a2"], ago=140)
    retried(rows, 270)
    rows(WORKED, accounts=["a3", "a4"], ago=133)
    sweep(app, "alerts")
    assert rows(FIRES) == [("fails_now", "webhook")]
    with database.statement() as connection:
        assert failing_accounts(connection) == []


def test_an_account_that_fails_alone_is_named(database: Database, rows: Rows) -> None:
    rows(WORKED, accounts=["a0", "a3"], ago=140)
    retried(rows, 30, accounts=1)
    rows(WORKED, accounts=["a3"] * 40, ago=0)
    with database.statement() as connection:
        ((role, account, attempts),) = [(one.role, one.account, one.attempts) for one in failing_accounts(connection)]
    assert (role, account, attempts) == ("webhook", "a0", 30)


@pytest.mark.usefixtures("system")
def test_a_paused_role_does_not_burn(database: Database, rows: Rows) -> None:
    retried(rows, 30)
    assert burns(database)
    rows("UPDATE roles SET paused = true WHERE role = 'webhook'")
    assert burns(database) == []


@pytest.mark.usefixtures("system")
def test_what_always_fails_as_often_does_not_burn(database: Database, rows: Rows) -> None:
    """A role of which 30 % of the attempts fail each day."""
    past(rows, completed=70, failed=10, retried=20, first=1)
    finished(rows, "webhook", n=70, ago=0)
    retried(rows, 30)
    assert burns(database) == []


@pytest.mark.usefixtures("system")
def test_a_retry_without_an_error_is_no_failure(database: Database, rows: Rows) -> None:
    retried(rows, 100, why=None)
    assert burns(database) == []


@pytest.mark.usefixtures("system")
def test_a_few_failures_of_a_busy_role_are_no_incident(database: Database, rows: Rows) -> None:
    finished(rows, "webhook", n=3_000, ago=1)
    retried(rows, 30, every=5)
    assert burns(database) == []


@pytest.mark.usefixtures("system")
def test_a_quiet_role_is_judged_by_its_hour(database: Database, rows: Rows) -> None:
    """A failure in four minutes: never ten within five."""
    rows("DELETE FROM history WHERE role = 'webhook'")
    retried(rows, 14, every=240)
    (one,) = burns(database)
    assert (one.failed, one.attempts, round(one.window)) == (14, 14, 3_600)


@pytest.mark.usefixtures("system")
def test_a_role_that_keeps_no_successes_is_judged_by_what_its_workers_counted(database: Database, rows: Rows) -> None:
    rows("""UPDATE roles SET definition = '{"keep": 0}' WHERE role = 'webhook'""")
    rows("DELETE FROM history WHERE role = 'webhook'")
    retried(rows, 30)
    assert burns(database)
    rows("""INSERT INTO outcomes (role, minute, completed, failed, completed_again, failed_again, run_seconds)
        VALUES ('webhook', date_trunc('minute', now()), 500, 0, 0, 0, 0)""")
    assert burns(database) == []


@pytest.mark.usefixtures("system")
def test_the_error_began_in_the_first_minute_that_failed(database: Database, rows: Rows) -> None:
    """An outage of three hours, of which the events that are read tell the last hour."""
    past(rows, first=200)
    rows(
        """INSERT INTO minutes (role, minute, completed, retried)
        SELECT 'webhook', date_trunc('minute', now()) - n * interval '1 minute', 0, 50 FROM generate_series(1, 180) n"""
    )
    rows("DELETE FROM history WHERE role = 'webhook'")
    retried(rows, 300, every=12)
    (one,) = burns(database)
    assert one.since == rows("SELECT date_trunc('minute', now()) - interval '180 minutes'")[0][0]


@pytest.mark.usefixtures("system")
def test_a_worker_that_started_just_before_is_named(database: Database, rows: Rows) -> None:
    live_worker(rows, "new", queues='["webhook"]')
    rows("UPDATE workers SET started_at = now() - interval '3 minutes' WHERE worker_id = 'new'")
    retried(rows, 30)
    (one,) = burns(database)
    assert one.worker_started_at == rows("SELECT started_at FROM workers WHERE worker_id = 'new'")[0][0]
    assert "; a worker of it started at " in one.sentence


@given(some.integers(0, 10**9), some.integers(0, 10**9))
def test_the_limit_is_never_below_what_is_usual(completed: int, failed: int) -> None:
    limit = limit_of(completed, failed)
    assert LEAST <= limit <= CERTAIN
    if completed + failed >= 100:
        assert limit >= min(CERTAIN, failed / (completed + failed))


def test_what_has_passed_does_not_burn() -> None:
    row = SimpleNamespace(
        past_completed=1_000, past_failed=0, silent=1.0, newest=0.1, failed_5=100, completed_5=0, failed_60=100,
        completed_60=0, since_5=None, since_60=None,
    )  # fmt: skip
    assert window_of(row) is None


@pytest.mark.usefixtures("system")
def test_status_says_it_first_before_and_after_its_alert_fires(app: Celeriac, rows: Rows) -> None:
    def first() -> str:
        told = CliRunner().invoke(within_celery, ["status"], obj=SimpleNamespace(app=app))
        return told.stdout.splitlines()[0]

    assert first().startswith("pending ")
    retried(rows, 30)
    for _ in range(2):
        assert first().startswith("wrong     fails_now webhook: 30 of 30 attempts failed")
        sweep(app, "alerts")


def test_every_rule_has_its_place_among_the_damage() -> None:
    assert sorted(DAMAGE) == sorted(rule.name for rule in RULES)
    pages = [rule.name for rule in RULES if rule.severity == "page"]
    assert {*DAMAGE[: len(pages)]} == {*pages}, "what pages comes before what warns"
