"""Staged incidents: each is the first thing that doctor, status, overview and alert name, and its cure ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from celeriac.doctor import examine
from tests.end_to_end.staging import BRIEF, USUAL, Staged
from tests.processes import until

pytestmark = pytest.mark.usefixtures("well")


BY_NIGHT = pytest.mark.nightly("the incident by day is a query of theirs; what is named beside it differs")


@pytest.fixture
def patience(staged: Staged, request: pytest.FixtureRequest) -> Iterator[None]:
    with staged.patient(request.param):
        yield


@pytest.mark.parametrize("patience", [USUAL], indirect=True)
@pytest.mark.usefixtures("patience")
def test_an_open_transaction_that_holds_a_tasks_row(staged: Staged) -> None:
    staged.broken("hangs")
    staged.module.report.delay()
    until(lambda: staged.rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to run")
    with staged.psql("UPDATE celeriac.worker_tasks SET priority = 7 WHERE status = 'running'") as pid:
        staged.names("held_lock", f"pid {pid}", "idle in transaction", "psql", "since ")
        (cure,) = [finding.cure for finding in examine(staged.module.app) if f"pid {pid}" in finding.says]
        assert f"SELECT pg_terminate_backend({pid});" in str(cure)
        staged.rows(f"SELECT pg_terminate_backend({pid})")
        staged.is_over("held_lock")


@pytest.mark.parametrize(
    "patience",
    [BRIEF, pytest.param(USUAL, marks=pytest.mark.nightly("each statement that meets the lock waits two seconds"))],
    indirect=True,
)
@pytest.mark.usefixtures("patience")
def test_a_table_that_is_locked(staged: Staged) -> None:
    with staged.psql("LOCK TABLE celeriac.tasks IN ACCESS EXCLUSIVE MODE") as pid:
        staged.names("locked_table", f"pid {pid}", "idle in transaction", "tasks")
        staged.rows(f"SELECT pg_terminate_backend({pid})")
    staged.is_over("locked_table")


def test_an_endpoint_that_is_down_for_all(staged: Staged) -> None:
    staged.module.webhook.bulk([{"account": f"a{n}"} for n in range(30)])
    ended = "SELECT count(*) FROM worker_tasks WHERE role = 'webhook' AND status = 'completed'"
    until(lambda: staged.rows.one(ended) == 30, "successes")
    staged.broken("down")
    staged.module.webhook.bulk([{"account": f"a{n}"} for n in range(40)])
    staged.names("fails_now", "webhook", "HTTPError: # for https://hooks.example/orders", "40 accounts", "since ")
    staged.mended()
    staged.module.webhook.bulk([{"account": f"a{n}"} for n in range(30)])
    staged.is_over("fails_now")


def test_an_endpoint_that_is_down_for_one_account(staged: Staged) -> None:
    staged.broken("down for acme")
    staged.module.webhook.bulk([{"account": "acme"}] * 40)
    staged.names("fails_now", "webhook", "HTTPError: # for", "of account acme are hit")
    staged.mended()
    staged.module.webhook.bulk([{"account": "acme"}] * 30)
    staged.is_over("fails_now")


def test_a_release_that_fails_at_once(staged: Staged) -> None:
    staged.broken("poison")
    staged.module.poisoned.bulk([{}] * 20)
    staged.names("fails_now", "poisoned", " object is not iterable", "a worker of it started at")
    staged.mended()
    staged.module.poisoned.bulk([{}] * 30)
    staged.is_over("fails_now")


def test_a_worker_that_is_frozen(staged: Staged) -> None:
    staged.broken("hangs")
    staged.module.report.delay()
    until(lambda: staged.rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to run")
    staged.worker.signal_all(signal.SIGSTOP)
    try:
        ((name,),) = staged.rows("SELECT worker_id FROM celeriac.workers")
        staged.names("dead_worker", name, "was heard of ")
    finally:
        staged.worker.signal_all(signal.SIGCONT)
    staged.mended()
    staged.is_over("dead_worker")


def test_a_role_that_nobody_serves(staged: Staged) -> None:
    staged.rows("INSERT INTO worker_tasks (task_id, role) SELECT 'old ' || n, 'renamed' FROM generate_series(1, 3) n")
    staged.names("no_worker", "renamed", "3 tasks may start, and no worker takes the queue renamed")
    (cure,) = [finding.cure for finding in examine(staged.module.app) if finding.check == "roles"]
    assert "celeriac roles move renamed NAME" in (cure or "")
    staged.rows("DELETE FROM worker_tasks WHERE role = 'renamed'")
    staged.is_over("no_worker")


def test_a_flood_by_one_account(staged: Staged) -> None:
    staged.broken("hangs")
    staged.module.report.bulk([{"account": "other"}] * 3)
    staged.module.report.bulk([{"account": "acme"}] * 80)
    staged.names("flood", "report", "tasks wait, and of the newest ", "of account acme")
    staged.mended()
    staged.is_over("flood")


def test_a_lock_key_that_does_not_move(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    staged.broken("hangs")
    staged.module.report.delay(key="stuck")
    until(lambda: staged.rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to run")
    staged.module.report.bulk([{"key": "stuck"}] * 2)
    staged.rows("UPDATE celeriac.tickets SET started_at = now() - interval '61 minutes' WHERE worker_id IS NOT NULL")
    staged.names("stuck_key", "key:stuck", "of report has it for 1 h", "2 wait behind it")
    staged.mended()
    staged.is_over("stuck_key")


def test_a_schedule_that_overlaps_itself(staged: Staged) -> None:
    staged.broken("hangs")
    staged.rows("UPDATE celeriac.scheduled_jobs SET enabled = true, next_run_at = now() WHERE name = 'overlapping'")
    staged.names("skipped_instants", "overlapping", "left out an instant at ", " is not over")
    staged.mended()
    staged.rows("UPDATE celeriac.scheduled_jobs SET enabled = false WHERE name = 'overlapping'")
    staged.is_over("skipped_instants")


def test_no_beat(staged: Staged) -> None:
    staged.beat.kill()
    staged.names("beat_silent", "beat", "none has ticked for ", "schedules wait for one")
    staged.beat = staged.tick()
    staged.is_over("beat_silent")


REFUSES = """
CREATE FUNCTION public.refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no minute today'; END $$;
CREATE TRIGGER refuses BEFORE UPDATE ON celeriac.minutes_until EXECUTE FUNCTION public.refuses()
"""


def test_a_sweep_that_fails(staged: Staged) -> None:
    staged.rows(REFUSES)
    try:
        staged.names("failing_sweep", "sweep minutes", "no minute today", "charts, totals and comparisons ")
    finally:
        staged.rows("DROP FUNCTION public.refuses CASCADE")
    staged.cured("failing_sweep")


def test_redis_is_full(staged: Staged) -> None:
    with Redis.from_url(staged.valkey.url) as client:
        client.config_set("maxmemory", 1)
        staged.names("redis_full", "Redis", "`maxmemory`")
        client.config_set("maxmemory", 0)
    staged.is_over("redis_full")


def test_redis_is_gone(staged: Staged) -> None:
    staged.valkey.stop()
    staged.names("redis_away", "Redis", "does not answer")
    staged.valkey.start()
    staged.is_over("redis_away")


def test_the_connections_of_postgres_are_used_up(staged: Staged) -> None:
    with ExitStack() as stack:
        most = int(str(staged.rows.one("SHOW max_connections"))) - 3
        used = int(str(staged.rows.one("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")))
        greedy = create_engine(staged.postgres.url, poolclass=NullPool, connect_args={"application_name": "greedy"})
        for _ in range(int(most * 0.95) - used):
            stack.enter_context(greedy.connect())
        staged.names("connections_full", "Postgres", " connections are in use", "greedy")
    staged.is_over("connections_full")


FOR_LONG = "SELECT count(*) FROM generate_series(1, 1000000) AS a, generate_series(1, 1000000) AS b"


def test_a_query_of_theirs_that_makes_postgres_slow(staged: Staged) -> None:
    with staged.burners(FOR_LONG):
        staged.names("slow_postgres", "Postgres", "psql) runs for ", "SELECT count(*)", " more run for over 5 s")
        staged.cured("slow_postgres")


@BY_NIGHT
def test_a_query_of_ours_that_makes_postgres_slow(staged: Staged) -> None:
    with staged.burners(FOR_LONG, "celeriac api"):
        staged.names("slow_postgres", "Postgres", "celeriac api) (the engine's own) runs for ")
        staged.cured("slow_postgres")


@BY_NIGHT
def test_a_vacuum_while_postgres_is_slow(staged: Staged) -> None:
    """It is slowed down, as autovacuum is: what is named first is the queries beside it."""
    staged.rows("CREATE TABLE public.dead WITH (autovacuum_enabled = off) AS SELECT generate_series(1, 500000) AS n")
    staged.rows("DELETE FROM public.dead")
    with staged.burners(FOR_LONG, first="VACUUM public.dead"):
        staged.names("slow_postgres", "Postgres", "psql) runs for ", "; a vacuum of dead is under way (pid ")
        staged.cured("slow_postgres")
    staged.rows("DROP TABLE public.dead")


@BY_NIGHT
def test_a_checkpoint_while_postgres_is_slow(staged: Staged) -> None:
    ending = threading.Event()

    def checkpoints() -> None:
        while not ending.wait(0.05):
            staged.rows("CREATE TABLE public.written AS SELECT repeat('x', 1000) FROM generate_series(1, 30000)")
            staged.rows("CHECKPOINT")
            staged.rows("DROP TABLE public.written")

    thread = threading.Thread(target=checkpoints)
    thread.start()
    try:
        with staged.burners(FOR_LONG):
            staged.names("slow_postgres", "Postgres", "psql) runs for ")
            until(lambda: "a checkpoint is under way" in staged.status(), "it to be named", 30)
            staged.cured("slow_postgres")
    finally:
        ending.set()
        thread.join()


def test_redis_is_slow(staged: Staged) -> None:
    """Its answers take longer than they may, and not for so long that it seems away; somebody's scripts are logged.

    The way there takes the time: how long a script keeps Redis busy is up to who else has the processor.
    """
    ending = threading.Event()
    busy = "local n = 0 for i = 1, 8000000 do n = n + i end return n"
    with Redis.from_url(staged.valkey.url, client_name="reports", socket_timeout=10) as client:

        def scripts() -> None:
            client.eval(busy, 0)
            while not ending.wait(5):  # what is logged counts for a minute; a tenth of a second is a cause
                client.eval(busy, 0)

        client.config_set("slowlog-log-slower-than", 1_000)
        thread = threading.Thread(target=scripts)
        thread.start()
        staged.to_valkey.late = 0.08
        try:
            staged.names("slow_redis", "Redis", "an answer takes ", "EVAL of client 127.0.0.1:", "kept it busy")
        finally:
            staged.to_valkey.late = 0.0
            ending.set()
            thread.join()
        staged.is_over("slow_redis")


def test_an_endpoint_that_is_slow(staged: Staged) -> None:
    staged.rows(
        "INSERT INTO celeriac.minutes (role, minute, completed, runs) "
        "SELECT 'webhook', date_trunc('minute', now()) - interval '2 hours', 200, "
        "ARRAY[0, 0, 200] || array_fill(0, ARRAY[17])"
    )
    staged.broken("slow")
    staged.module.webhook.bulk([{"account": f"a{n}"} for n in range(40)])
    staged.names("slow_role", "webhook", "half of its newest ", "nine of ten took up to 0.0")
    staged.mended()
    staged.module.webhook.bulk([{"account": f"a{n}"} for n in range(30)])
    staged.is_over("slow_role")


def test_an_endpoint_that_is_down_for_one_account_while_others_go_on(staged: Staged) -> None:
    everybody = [{"account": account} for account in ("acme", *(f"a{n}" for n in range(4)))]
    staged.module.webhook.bulk(everybody * 20)
    ended = "SELECT count(*) FROM worker_tasks WHERE role = 'webhook' AND status = 'completed'"
    until(lambda: staged.rows.one(ended) == 100, "successes")
    staged.broken("down for acme")
    staged.module.webhook.bulk(everybody * 20)
    staged.names("account_fails", "acme", "in webhook, all ", "HTTPError: # for")
    staged.cured("account_fails")
    staged.mended()
    assert staged.command("accounts", "resume", "acme").exit_code == 0
    staged.module.webhook.bulk([{"account": "acme"}] * 30)
    staged.is_over("account_fails")


def test_a_worker_that_leaks(staged: Staged) -> None:
    """What it has grown by is not given back, as its task goes on."""
    staged.broken("hangs")
    limits = {"CELERIAC_MEMORY_LIMIT_MB": "500", "BACKOFF_DURATION_MS": "500"}
    with staged.another_worker("leaks", "-Q", "leaks", "-c", "1", **limits) as leaking:
        staged.module.leaks.delay()
        staged.names("short_of_memory", "leaks", "takes nothing more: Memory at ", "waiting did not help")
        leaking.kill()
        staged.mended()
        with staged.another_worker("leaks", "-Q", "leaks", "-c", "1", **limits):
            staged.is_over("short_of_memory")
            ended = "SELECT FROM celeriac.history WHERE role = 'leaks' AND status = 'completed'"
            until(lambda: staged.rows(ended), "its task to run again")


def test_a_worker_that_is_too_old(staged: Staged) -> None:
    """Its cure lets it end; the newer one has been there for longer than a deploy takes."""
    with ExitStack() as stack:
        for name, deployment in (("old", "1"), ("new", "2")):
            stack.enter_context(staged.another_worker(name, "-Q", "aside", CELERIAC_DEPLOYMENT=deployment))
        staged.rows("UPDATE celeriac.workers SET started_at = now() - interval '11 minutes' WHERE worker_id = 'new'")
        staged.names(
            "old_worker", "old", "(deployment 1), and ", "(deployment 2) has served one of its queues for 11 min"
        )
        staged.cured("old_worker")


def test_a_workers_clock_that_is_wrong(staged: Staged, tmp_path: Path) -> None:
    shifted = "import time\nreal = time.time\ntime.time = lambda: real() - 300\n"
    (tmp_path / "sitecustomize.py").write_text(shifted)
    path = f"{tmp_path}:{Path.cwd()}"
    with staged.another_worker("behind", "-Q", "aside", PYTHONPATH=path):
        staged.names("clocks_apart", "behind", "its clock is 5 min behind the database's")
    with staged.another_worker("behind", "-Q", "aside"):
        staged.is_over("clocks_apart")
