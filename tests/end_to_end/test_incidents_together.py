"""Two incidents at once are named in the order of their damage; a healthy system under mixed load names none."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import combinations

import pytest
from redis import Redis

from celeriac import Settings
from celeriac.alerts.rules import RULES
from celeriac.insights.history.alerts import damage
from tests.end_to_end.staging import PATIENCE, Staged
from tests.processes import until

RUNS = "SELECT FROM worker_tasks WHERE role = 'report' AND status = 'running'"


pytestmark = pytest.mark.usefixtures("well")


@contextmanager
def nobody_serves(staged: Staged) -> Iterator[str]:
    staged.rows("INSERT INTO worker_tasks (task_id, role) SELECT 'old ' || n, 'renamed' FROM generate_series(1, 3) n")
    yield "renamed"
    staged.rows("DELETE FROM worker_tasks WHERE role = 'renamed'")


@contextmanager
def full_redis(staged: Staged) -> Iterator[str]:
    with Redis.from_url(staged.valkey.url) as client:
        client.config_set("maxmemory", 1)
        yield "Redis"
        client.config_set("maxmemory", 0)


@contextmanager
def endpoint_down(staged: Staged) -> Iterator[str]:
    staged.broken("down")
    staged.module.webhook.bulk([{"account": f"a{n}"} for n in range(40)])
    yield "webhook"


@contextmanager
def hanging(staged: Staged) -> Iterator[None]:
    staged.broken("hangs")
    if not staged.rows(RUNS):
        staged.module.report.delay(key="stuck")
        until(lambda: staged.rows(RUNS), "it to run")
    yield


@contextmanager
def stuck_key(staged: Staged) -> Iterator[str]:
    with hanging(staged):
        staged.module.report.bulk([{"key": "stuck"}] * 2)
        staged.rows(
            "UPDATE celeriac.tickets SET started_at = now() - interval '61 minutes' WHERE worker_id IS NOT NULL"
        )
        yield "key:stuck"


@contextmanager
def held_rows(staged: Staged) -> Iterator[str]:
    with (
        hanging(staged),
        staged.psql(
            "UPDATE celeriac.worker_tasks SET priority = 7 WHERE role = 'report' AND status = 'running'"
        ) as pid,
    ):
        yield f"pid {pid}"


@contextmanager
def skips(staged: Staged) -> Iterator[str]:
    with hanging(staged):
        staged.rows("UPDATE celeriac.scheduled_jobs SET enabled = true, next_run_at = now() WHERE name = 'overlapping'")
        yield "overlapping"
        staged.rows("UPDATE celeriac.scheduled_jobs SET enabled = false WHERE name = 'overlapping'")


INCIDENTS: dict[str, Callable[[Staged], AbstractContextManager[str]]] = {
    "no_worker": nobody_serves, "redis_full": full_redis, "fails_now": endpoint_down, "stuck_key": stuck_key,
    "held_lock": held_rows, "skipped_instants": skips,
}  # fmt: skip

#: Whose row is held can be neither stuck nor over before the other's statement is.
PAIRS = [pair for pair in combinations(INCIDENTS, 2) if set(pair) != {"stuck_key", "held_lock"}]

#: The pairs of the run by day.
BY_DAY = {("redis_full", "skipped_instants"), ("fails_now", "stuck_key"), ("no_worker", "skipped_instants")}

SEVERITY = {rule.name: rule.severity for rule in RULES}


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(
            pair, id="+".join(pair), marks=() if pair in BY_DAY else pytest.mark.nightly("a minute for each pair")
        )
        for pair in PAIRS
    ],
)
def test_of_two_at_once_the_worse_comes_first(staged: Staged, pair: tuple[str, str]) -> None:
    with ExitStack() as stack:
        subjects = {name: stack.enter_context(INCIDENTS[name](staged)) for name in pair}
        worse, other = sorted(pair, key=lambda name: damage(name, SEVERITY[name]))

        def named() -> list[str]:
            lines = staged.status(whole=True).splitlines()
            wanted = {f"wrong     {name} {subject}: ": name for name, subject in subjects.items()}
            return [name for line in lines for start, name in wanted.items() if line.startswith(start)]

        until(lambda: named() == [worse, other], f"{worse} and then {other}", PATIENCE)
        staged.is_first(worse, subjects[worse])


@pytest.mark.parametrize(
    "seconds",
    [5, pytest.param(600, marks=[pytest.mark.nightly("ten minutes of mixed load"), pytest.mark.timeout(900)])],
)
def test_a_healthy_system_under_mixed_load_names_nothing(
    staged: Staged, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many accounts, keys that are shared, a few failures, retries, cancels and a report of somebody's.

    Silence is judged by the thresholds that everybody has: those of the stage are shorter than a pause of a busy
    machine.
    """
    usual, app = Settings.from_environ({}), staged.module.app
    silence = {"alert_beat": usual.alert_beat, "alert_heartbeat": usual.alert_heartbeat}
    monkeypatch.setattr(app, "settings", replace(app.settings, **silence))
    draw = random.Random(seconds)
    until_when = time.monotonic() + seconds
    while time.monotonic() < until_when:
        staged.module.webhook.bulk([{"account": f"a{draw.randrange(20)}"} for _ in range(draw.randrange(40))])
        staged.module.report.bulk([{"key": f"k{draw.randrange(5)}"} for _ in range(3)])
        staged.module.poisoned.delay()
        staged.rows("SELECT count(*), pg_sleep(0.2) FROM celeriac.history")
        assert staged.wrong() == []
        assert not staged.status().startswith("wrong"), staged.status(whole=True)
    assert staged.rows("SELECT name, subject FROM celeriac.alerts") == []
