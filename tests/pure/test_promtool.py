"""Prometheus' own tool takes the figures, the rules and the dashboard; each alert fires once and stays silent once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from celeriac.alerts.rules import RULES, Rule
from celeriac.metrics.catalogue import METRICS, PREFIX
from celeriac.metrics.exporter import as_text
from celeriac.metrics.grafana import expressions
from celeriac.metrics.prometheus import RUNBOOKS, UNSEEN, alert_name
from celeriac.metrics.read import Samples
from tests.processes import ROOT

FILE = ROOT / "deploy" / "prometheus" / "celeriac.rules.yml"

Series = Mapping[str, object]


class Case(NamedTuple):
    """Series with which an alert fires and is silent, each a value for an hour or values a minute; its labels, and its
    summary.
    """

    fires: Series
    silent: Series
    labels: Mapping[str, str]
    says: str


WORK, NIGHTLY = {"role": "work"}, {"schedule": "nightly"}

ROOMS = {f'tasks_{room}{{role="work"}}': 2 for room in ("delayed", "locked", "parked", "awaiting", "claimed")}

CASES = {
    "queue_depth": Case(
        ROOMS | {'tasks_ready{role="work"}': 991}, ROOMS | {'tasks_ready{role="work"}': 990}, WORK,
        "work: 1001 tasks wait, more than 1000",
    ),
    "flood": Case(
        {'tasks_of_a_flood{role="work"}': 1001}, {'tasks_of_a_flood{role="work"}': 1000}, WORK,
        "work: 1001 tasks wait, more than 1000, most of them of one account",
    ),
    "stuck_key": Case(
        {"stuck_key_seconds": 3700}, {"stuck_key_seconds": 0}, {},
        "a lock key: a task has waited behind it for 3700 s, and it does not move",
    ),
    "failed_rate": Case(
        {'recent_tasks{role="work",outcome="failed"}': 3, 'recent_tasks{role="work",outcome="completed"}': 18},
        {'recent_tasks{role="work",outcome="failed"}': 3, 'recent_tasks{role="work",outcome="completed"}': 17,
         'recent_tasks{role="work",outcome="cancelled"}': 100}, WORK,
        "work: 14.29% of its tasks fail, more than 10.0%",
    ),
    "fails_now": Case(
        {'tasks_failing_now{role="work"}': 270}, {'tasks_failing_now{role="work"}': 0}, WORK,
        "work: far more of its attempts fail than before; 270 tasks are hit within the hour",
    ),
    "account_fails": Case(
        {'account_tasks_failing{role="work"}': 20}, {'account_tasks_failing{role="work"}': 0}, WORK,
        "an account of work: all its attempts fail while others' do not; 20 tasks are hit within the hour",
    ),
    "slow_role": Case(
        {'runs_slower_ratio{role="work"}': 4}, {'runs_slower_ratio{role="work"}': 3}, WORK,
        "work: its tasks run 4 times as long as they did before",
    ),
    "long_running": Case(
        {'running_oldest_seconds{role="work"}': 3601}, {'running_oldest_seconds{role="work"}': 3600}, WORK,
        "work: a task runs for 3601 s, over 3600 s",
    ),
    "missed_schedule": Case(
        {'schedule_lateness_seconds{schedule="nightly"}': 301}, {'schedule_lateness_seconds{schedule="nightly"}': 300},
        NIGHTLY, "nightly: is 301 s late, more than 300 s",
    ),
    "skipped_instants": Case(
        {'schedule_skips_total{schedule="nightly"}': "2x20 3x39"}, {'schedule_skips_total{schedule="nightly"}': 3},
        NIGHTLY, "nightly: left out an instant within the last hour, as it was missed or the last task was not over",
    ),
    "beat_silent": Case(
        {"beat_tick_age_seconds": 61}, {"beat_tick_age_seconds": 60}, {},
        "beat: there are schedules, and none has ticked for 61 s, more than 60 s",
    ),
    "failing_sweep": Case(
        {'sweep_fails{schedule="nightly"}': 1}, {'sweep_fails{schedule="nightly"}': 0}, NIGHTLY,
        "nightly: fails, and what it repairs stays as it is",
    ),
    "no_worker": Case(
        {'tasks_ready{role="work"}': 0, 'tasks_claimed{role="work"}': 7, 'workers{role="work",state="active"}': 0,
         'role_paused{role="work"}': 0, 'workers{role="other",state="active"}': 1},
        {'tasks_ready{role="work"}': 7, 'tasks_claimed{role="work"}': 1, 'workers{role="work",state="active"}': 1,
         'role_paused{role="work"}': 0, 'tasks_ready{role="paused"}': 7, 'tasks_claimed{role="paused"}': 0,
         'workers{role="paused",state="active"}': 0, 'role_paused{role="paused"}': 1},
        WORK, "work: 7 tasks could start, and no worker takes them",
    ),
    "idle_while_ready": Case(
        {'tasks_left_ready{role="work"}': 3}, {'tasks_left_ready{role="work"}': 0}, WORK,
        "work: 3 tasks could start and a worker has nothing to do, but no pass claims them",
    ),
    "dead_worker": Case(
        {'worker_silence_seconds{role="work"}': 121}, {'worker_silence_seconds{role="work"}': 120}, WORK,
        "a worker of work: has sent no heartbeat for 121 s, more than 120 s",
    ),
    "short_of_memory": Case(
        {"workers_short_of_memory": 1}, {"workers_short_of_memory": 0}, {},
        "a worker: takes nothing more: its memory is short, and was so already when it last waited",
    ),
    "old_worker": Case(
        {"worker_release_behind_seconds": 601}, {"worker_release_behind_seconds": 600}, {},
        "a worker: a newer release has served one of its queues for 601 s, more than 600 s",
    ),
    "clocks_apart": Case(
        {"worker_clock_seconds": 6}, {"worker_clock_seconds": 5}, {},
        "a worker: its clock and the database's differ by 6 s, more than 5 s",
    ),
    "drains_on": Case(
        {"worker_drain_overdue_seconds": 1}, {"worker_drain_overdue_seconds": 0}, {},
        "a worker: takes nothing more and should have ended 1 s ago",
    ),
    "long_wait": Case(
        {'oldest_ready_seconds{role="work"}': 61, 'wait_objective_seconds{role="work"}': 60},
        {'oldest_ready_seconds{role="work"}': 60, 'wait_objective_seconds{role="work"}': 60}, WORK,
        "work: a task that could start waits for 61 s, longer than it should",
    ),
    "unfair": Case(
        {'fairness_lag_rounds{role="work"}': 2}, {'fairness_lag_rounds{role="work"}': 1}, WORK,
        "work: an account that holds nothing waits while another got 2 slots; 1 is the bound",
    ),
    "redis_away": Case(
        {"redis_up": 1, "redis_refuses": 1}, {"redis_up": 1, "redis_refuses": 0}, {},
        "Redis: does not answer, or refuses wake-ups; work goes on more slowly, as workers look for it in SQL",
    ),
    "slow_redis": Case(
        {"redis_answer_seconds": 0.2, "redis_round_trip_seconds": 0.05},
        {"redis_answer_seconds": 0.3, "redis_round_trip_seconds": 0.25}, {},
        "Redis: an answer takes 0.2 s: over 0.1 s longer than the way there and back, or more than 0.5 s",
    ),
    "redis_full": Case(
        {"redis_memory_ratio": 0.96}, {"redis_memory_ratio": 0.95}, {},
        "Redis: has 96% of its `maxmemory` in use, more than 95.0%: it takes no more tickets",
    ),
    "disk_full": Case({"disk_full": 1}, {"disk_full": 0}, {}, "Postgres: its disk is full: nothing can be written"),
    "read_only": Case(
        {"postgres_read_only": 1}, {"postgres_read_only": 0}, {}, "Postgres: takes no writes: nothing can run"
    ),
    "slow_commits": Case(
        {"commit_wait_seconds": 3}, {"commit_wait_seconds": 2}, {},
        "Postgres: commits wait for 3 s, more than 2 s: for a standby, or for the disk",
    ),
    "schema_behind": Case(
        {"schema_behind": 1}, {"schema_behind": 0}, {},
        "Postgres: lacks 1 revisions of this code: its workers do not start",
    ),
    "schema_ahead": Case(
        {"schema_ahead": 1}, {"schema_ahead": 0}, {},
        "Postgres: a later release has migrated it, and this code does not run on that",
    ),
    "slow_postgres": Case(
        {"postgres_crowd_ratio": 4}, {"postgres_crowd_ratio": 3}, {},
        "Postgres: statements run for long, and take 4.0 times as long as they need, more than 3",
    ),
    "connections_full": Case(
        {"connections_ratio": 0.92}, {"connections_ratio": 0.9}, {},
        "Postgres: 92% of its connections are in use, more than 90.0%",
    ),
    "lost_tickets": Case(
        {'tickets_lost{role="work"}': 101}, {'tickets_lost{role="work"}': 100}, WORK,
        "work: Redis lost the tickets of 101 tasks within 15 minutes, more than 100",
    ),
    "late_finish": Case(
        {'late_finishes{role="work"}': 1}, {'late_finishes{role="work"}': 0}, WORK,
        "work: within 15 minutes 1 runs ended after their task had been taken from them",
    ),
    "locked_table": Case(
        {"table_locked_seconds": 6}, {"table_locked_seconds": 5}, {},
        "a session: somebody's transaction has locked tables of the engine for 6 s, more than 5 s",
    ),
    "held_lock": Case(
        {"lock_held_seconds": 6}, {"lock_held_seconds": 5}, {},
        "a session: somebody's transaction holds rows or tables of the engine for 6 s, more than 5 s",
    ),
    "held_snapshot": Case(
        {"oldest_transaction_seconds": 601}, {"oldest_transaction_seconds": 600}, {},
        "Postgres: a transaction is open for 601 s, more than 600 s: nothing that is dead can be vacuumed",
    ),
    "stuck_outbox": Case(
        {"outbox_oldest_seconds": 61}, {"outbox_oldest_seconds": 60}, {},
        "the outbox: an accepted task has waited for 61 s to be inserted, more than 60 s",
    ),
    "dead_letters": Case(
        {"dead_letters": 1}, {"dead_letters": 0}, {}, "plain Celery: messages that are no task: 1, more than 0"
    ),
    "figures_missing": Case(
        {"scrape_ok": 0}, {"scrape_ok": 1}, {},
        "Prometheus: no API server tells figures: it is down, or Postgres does not answer it",
    ),
    "figures_unread": Case(
        {"scrape_ok": 1, 'group_unread{group="locks"}': 1, 'group_unread{group="workers"}': 0},
        {"scrape_ok": 0, 'group_unread{group="locks"}': 1, 'group_unread{group="workers"}': 1}, {"group": "locks"},
        "figures of locks: no API server can read them, the others are read: Prometheus' alerts about them are blind",
    ),
}  # fmt: skip

EVERY = {rule.name: rule for rule in (*RULES, *UNSEEN)}


def asked(promtool: str, *command: str, given: bytes | None = None) -> tuple[int, str]:
    """Its exit status, and what it prints."""
    done = subprocess.run([promtool, *command], input=given, capture_output=True, timeout=60, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_every_alert_has_its_case() -> None:
    assert list(CASES) == list(EVERY)


def test_the_rules_are_taken(promtool: str) -> None:
    status, printed = asked(promtool, "check", "rules", str(FILE))
    assert (status, f"SUCCESS: {len(EVERY)} rules found" in printed) == (0, True), printed


def told_of_all() -> bytes:
    told = Samples()
    for metric in METRICS:
        labels = ["x"] * len(metric.labels)
        if metric.is_histogram:
            told.count(metric.name, [1] * (len(metric.bounds) + 1), 1.0, *labels)
        else:
            told.put(metric.name, 1, *labels)
    return as_text(told)


def test_the_figures_are_named_as_prometheus_wants_them(promtool: str) -> None:
    told = told_of_all()
    assert told.count(b"# HELP ") == len(METRICS)
    assert asked(promtool, "check", "metrics", given=told) == (0, "")


def test_a_bad_name_would_be_found(promtool: str) -> None:
    status, printed = asked(promtool, "check", "metrics", given=b"# HELP a_total x\n# TYPE a_total gauge\na_total 1\n")
    assert status != 0, printed


def as_rules(written: list[str]) -> str:
    rules = [
        {"record": f"panel:{n}", "expr": one.replace("$__rate_interval", "5m").replace("$role", ".*")}
        for n, one in enumerate(written)
    ]
    return yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]})


def test_every_panel_of_the_dashboard_asks_what_can_be_asked(promtool: str, tmp_path: Path) -> None:
    made = json.loads((ROOT / "deploy" / "grafana" / "celeriac.json").read_text())
    asks = [target["expr"] for panel in made["panels"] for target in panel.get("targets", ())]
    asks += [one["expr"] for one in made["annotations"]["list"]]
    assert len(asks) == len(expressions()) + 1
    file = tmp_path / "panels.yml"
    file.write_text(as_rules(asks))
    status, printed = asked(promtool, "check", "rules", "--lint=none", str(file))
    assert (status, f"SUCCESS: {len(asks)} rules found" in printed) == (0, True), printed
    file.write_text(as_rules([asks[0].replace(")", "", 1)]))
    assert asked(promtool, "check", "rules", "--lint=none", str(file))[0] != 0


def of_two_servers(series: Series) -> list[dict[str, str]]:
    """Both tell the same, and no alert fires twice for it."""
    return [
        {
            "series": f'{PREFIX}{name.rstrip("}")}{"," if "{" in name else "{"}instance="{instance}"}}',
            "values": values if isinstance(values, str) else f"{values}x60",
        }
        for instance in ("a", "b")
        for name, values in series.items()
    ]


def expected(rule: Rule, case: Case) -> dict[str, Any]:
    annotations = {"summary": case.says, "runbook": f"{RUNBOOKS}/{rule.name}.md"}
    return {"exp_labels": {**case.labels, "severity": rule.severity}, "exp_annotations": annotations}


def judged(promtool: str, folder: Path, rules: Path, name: str) -> tuple[int, str]:
    """That rule with the series with which it fires, up to when it does, and with those with which it does not."""
    rule, case = EVERY[name], CASES[name]
    late = max(int(rule.lasts), 30 * 60)
    times = [(max(0, int(rule.lasts) - 60), []), (late, [expected(rule, case)])] if rule.lasts else [
        (late, [expected(rule, case)])]  # fmt: skip
    tests = [
        {"interval": "1m", "input_series": of_two_servers(series), "alert_rule_test": [
            {"eval_time": f"{seconds}s", "alertname": alert_name(rule), "exp_alerts": alerts}
            for seconds, alerts in wanted]}
        for series, wanted in ((case.fires, times), (case.silent, [(late, [])]))
    ]  # fmt: skip
    file = folder / f"{name}.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    return asked(promtool, "test", "rules", str(file))


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_once_and_stays_silent_once(promtool: str, tmp_path: Path, name: str) -> None:
    status, printed = judged(promtool, tmp_path, FILE, name)
    assert status == 0, printed


@pytest.mark.parametrize(("name", "fires"), [("redis_away", {"redis_up": 0}), ("figures_missing", {"beats": 1})])
def test_an_alert_fires_for_each_of_its_causes(
    promtool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fires: Series
) -> None:
    monkeypatch.setitem(CASES, name, CASES[name]._replace(fires=fires))
    status, printed = judged(promtool, tmp_path, FILE, name)
    assert status == 0, printed


def test_a_threshold_that_is_off_by_a_little_would_be_found(promtool: str, tmp_path: Path) -> None:
    off = tmp_path / "off.yml"
    off.write_text(FILE.read_text().replace(" > 1000", " > 999"))
    status, printed = judged(promtool, tmp_path, off, "queue_depth")
    assert (status, "FAILED" in printed) == (1, True)
