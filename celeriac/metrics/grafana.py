"""Grafana's dashboard: seven rows, each panel with a unit and a sentence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}

WIDTH, HEIGHT = 24, 7

_OF_ROLE = '{role=~"$role"}'


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel. `lines`: the name and the expression of each. `$role` is the variable."""

    title: str
    description: str
    unit: str
    lines: Sequence[tuple[str, str]]
    kind: str = "timeseries"


def _by_role(name: str) -> str:
    return f"max by (role) (celeriac_{name}{_OF_ROLE})"


#: A minute's figures come once it is over, so rates need several minutes.
COUNTED = "[10m]"

SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def _a_second(name: str) -> str:
    """Return the rate of a figure that every server exports in the same way: the highest of several."""
    labels = "role, outcome" if name == "tasks_ended_total" else "role"
    return f"sum(max by ({labels}) (rate(celeriac_{name}{_OF_ROLE}{COUNTED})))"


def _quantile(name: str, share: float, by: str = "") -> str:
    buckets = f"max by (role, le) (rate(celeriac_{name}_bucket{_OF_ROLE}{COUNTED}))"
    return f"histogram_quantile({share}, sum by ({by}le) ({buckets}))"


def _rate(name: str, labels: str) -> str:
    """Return the rate of a figure that each process counts for itself."""
    return f"sum by ({labels}) (rate(celeriac_{name}{_OF_ROLE}[$__rate_interval]))"


def _waiting() -> list[tuple[str, str]]:
    rooms = ("ready", "delayed", "locked", "parked", "awaiting", "claimed", "running")
    return [(room, f"sum({_by_role(f'tasks_{room}')})") for room in rooms]


ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "Is it healthy?",
        (
            Panel("Alerts", "Subjects for which an alert fires", "short",
                [("firing", "sum(max by (alert) (celeriac_alerts_firing))")], "stat"),
            Panel("Ready", "Tasks that could start now", "short",
                [("ready", f"sum({_by_role('tasks_ready')})")], "stat"),
            Panel("Oldest", "For how long the oldest could have started", "s",
                [("oldest", f"max({_by_role('oldest_ready_seconds')})")], "stat"),
            Panel("Beat", "Since the last tick of any beat", "s",
                [("age", "max(celeriac_beat_tick_age_seconds)")], "stat"),
            Panel("Lateness", "Of the schedule that is latest", "s",
                [("late", "max(celeriac_schedule_lateness_seconds)")], "stat"),
            Panel("Redis", "Whether it answers the API server", "short", [("up", "max(celeriac_redis_up)")], "stat"),
        ),
    ),
    (
        "Flow",
        (
            Panel("Where tasks are", "By room; each is counted to 10,001 a role", "short", _waiting()),
            Panel("Running", "By role", "short", [("{{role}}", _by_role("tasks_running"))]),
            Panel("Runs", "Tasks a second, as the workers' own ports tell", "ops",
                [("{{role}}", f"sum by (role) (rate(celeriac_worker_tasks_run_total{_OF_ROLE}[$__rate_interval]))")]),
            Panel("Come and gone", "Tasks a second; where more are enqueued than end, a backlog grows", "ops",
                [("enqueued", _a_second("tasks_enqueued_total")), ("retried", _a_second("tasks_retried_total")),
                 ("ended", _a_second("tasks_ended_total"))]),
            Panel("What they came to", "Of the newest 1,000 that ended within an hour", "short",
                [("{{outcome}}", f"sum by (outcome) (max by (role, outcome) (celeriac_recent_tasks{_OF_ROLE}))")]),
        ),
    ),
    (
        "Time",
        (
            Panel("Wait", "From when a task was due to when it began; roles that keep their successes", "s",
                [(name, _quantile("wait_seconds", share)) for name, share in SHARES]),
            Panel("Run", "From when its ticket began to its outcome", "s",
                [(name, _quantile("run_seconds", share)) for name, share in SHARES]),
            Panel("Wait, by role", "95 % of its tasks waited less", "s",
                [("{{role}}", _quantile("wait_seconds", 0.95, "role, "))]),
            Panel("Run, by role", "95 % of its tasks ran for less", "s",
                [("{{role}}", _quantile("run_seconds", 0.95, "role, "))]),
        ),
    ),
    (
        "Room",
        (
            Panel("Slots", "The windows, and how much of them is free", "short",
                [("window {{role}}", _by_role("window")), ("free {{role}}", _by_role("slots_free"))]),
            Panel("Workers", "Of all queues, by what they report", "short",
                [("{{state}}", f"max by (state) (celeriac_workers{_OF_ROLE})")]),
            Panel("Idle", "Slots of workers that have nothing to do", "short",
                [("{{role}}", _by_role("workers_idle"))]),
            Panel("Backing off", "Workers that take nothing new, as memory or CPU is short", "short",
                [("{{reason}}", "sum by (reason) (celeriac_worker_backing_off)")]),
        ),
    ),
    (
        "Fairness",
        (
            Panel("Rounds", "That an account which holds nothing waits already; the bound is 1", "short",
                [("{{role}}", _by_role("fairness_lag_rounds")), ("bound", "vector(1)")]),
            Panel("Accounts that wait", "With a task that could start; counted to 100", "short",
                [("{{role}}", _by_role("accounts_waiting"))]),
            Panel("Longest wait", "Of a task that could start", "s", [("{{role}}", _by_role("oldest_ready_seconds"))]),
        ),
    ),
    (
        "Repairs",
        (
            Panel("Tickets lost", "Tasks whose ticket Redis lost, within 15 minutes", "short",
                [("{{role}}", _by_role("tickets_lost"))]),
            Panel("Late finishes", "Outcomes refused as the task was no longer its run's, within 15 minutes", "short",
                [("{{role}}", _by_role("late_finishes"))]),
            Panel("Fence", "Tasks a second that were no longer their run's as it began or settled", "ops",
                [("{{role}} {{verb}}", _rate("fence_refusals_total", "role, verb"))]),
            Panel("Rescued", "Tasks a second that were taken from who would not finish them", "ops",
                [("{{reason}}", _rate("rescued_total", "reason")),
                 ("ticket lost", f"sum({_rate('tickets_republished_total', 'role')})")]),
            Panel("Stale", "Tasks that run with a lease that is over", "short",
                [("{{role}}", _by_role("tasks_stale"))]),
            Panel("Instants left out", "By schedule, in an hour", "short",
                [("{{schedule}}", "max by (schedule) (increase(celeriac_schedule_skips_total[1h]))")]),
            Panel("Heartbeats", "Since each worker renewed its leases", "s",
                [("{{instance}}", "max by (instance) (celeriac_worker_heartbeat_age_seconds)")]),
        ),
    ),
    (
        "Postgres",
        (
            Panel("Oldest transaction", "What is dead since then stays", "s",
                [("age", "max(celeriac_oldest_transaction_seconds)")]),
            Panel("Dead rows", "As a share of each table", "percentunit",
                [("{{table}}", "max by (table) (celeriac_table_dead_ratio)")]),
            Panel("Passes", "95 % took less", "s",
                [("{{role}}", f"histogram_quantile(0.95, {_rate('pass_seconds_bucket', 'role, le')})")]),
            Panel("Statements", "95 % took less, with the way there and back", "s",
                [("{{verb}}", "histogram_quantile(0.95, sum by (verb, le) ("
                              "rate(celeriac_sql_seconds_bucket[$__rate_interval])))")]),
            Panel("Reading", "What a reading of these figures takes", "s",
                [("seconds", "max(celeriac_scrape_duration_seconds)")]),
        ),
    ),
)  # fmt: skip


def expressions() -> list[str]:
    return [expression for _, panels in ROWS for panel in panels for _, expression in panel.lines]


def dashboard() -> str:
    """Return the file's content."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": _at(top, 0, WIDTH, 1)}
        )
        width = WIDTH // len(row)
        panels += [_panel(panel, _at(top + 1, n * width, width, HEIGHT)) for n, panel in enumerate(row)]
        top += 1 + HEIGHT
    numbered = [{"id": number} | panel for number, panel in enumerate(panels, start=1)]
    return json.dumps(FRAME | {"panels": numbered}, indent=2, sort_keys=True) + "\n"


def _at(top: int, left: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + n), "datasource": SOURCE, "expr": expression, "legendFormat": name}
        for n, (name, expression) in enumerate(panel.lines)
    ]
    defaults = {"unit": panel.unit, "min": 0}
    return {
        "type": panel.kind, "title": panel.title, "description": panel.description, "datasource": SOURCE,
        "targets": targets, "fieldConfig": {"defaults": defaults, "overrides": []}, "gridPos": at,
    }  # fmt: skip


_ROLES = {
    "name": "role", "label": "Role", "type": "query", "datasource": SOURCE, "multi": True, "includeAll": True,
    "query": "label_values(celeriac_window, role)", "refresh": 2, "sort": 1,
    "current": {"text": "All", "value": "$__all"},
}  # fmt: skip

FRAME: dict[str, Any] = {
    "uid": "celeriac", "title": "Celeriac", "schemaVersion": 39, "version": 1, "editable": True, "refresh": "30s",
    "time": {"from": "now-6h", "to": "now"}, "timezone": "browser", "tags": ["celeriac"],
    "templating": {"list": [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}, _ROLES,
    ]},
    "annotations": {"list": [{
        "name": "Deployments", "datasource": SOURCE, "enable": True, "iconColor": "blue",
        "expr": "changes(celeriac_build_info[5m]) > 0 or (celeriac_build_info unless celeriac_build_info offset 5m)",
        "titleFormat": "{{version}}",
    }]},
}  # fmt: skip
