"""Page, API and command line tell the same of each insight, field by field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from celeriac.cli import within_celery
from tests.dashboard.site import EVIL, Site

Take = Callable[[Any], Any]


class Told(NamedTuple):
    """Where an insight is told: each a path or a command, and which part of what it answers."""

    page: tuple[str, Take]
    api: tuple[str, Take]
    command: tuple[str, Take] | None


def part(*names: str | int) -> Take:
    def take(whole: Any) -> Any:
        for name in names:
            whole = whole[name]
        return whole

    return take


def sorted_by(name: str, *names: str) -> Take:
    """Of lists whose order is each surface's own."""
    return lambda whole: sorted(part(*names)(whole), key=lambda one: one[name])


def depths(whole: Any) -> Any:
    return sorted((one["depth"] for one in whole["roles"]), key=lambda one: one["role"])


def counted(name: str) -> Take:
    return lambda whole: {status: count["n"] for status, count in whole[name].items()}


def uncounted(whole: Any) -> Any:
    return {status: n for status, n in whole.items() if status != "estimated"}


QUOTED, LOCK = quote(EVIL, safe=""), f"lock:running:{EVIL}"

ALIKE = {
    "tasks": Told(
        ("tasks", part("tasks", "items")),
        ("/api/tasks?limit=50", part("tasks")),
        ("tasks list --limit 50", part("items")),
    ),
    "one task": Told(
        ("tasks/{failed}", part("task")), ("/api/tasks/{failed}", part()), ("tasks show {failed}", part("task"))
    ),
    "what happened": Told(
        ("tasks/{failed}", part("events")),
        ("/api/tasks/{failed}/history", part("events")),
        ("tasks show {failed}", part("events")),
    ),
    "why": Told(("tasks/{pending}", part("why")), ("/api/tasks/{pending}/why", part()), ("why {pending}", part())),
    "counts": Told(("overview", counted("counts")), ("/api/tasks/counts", uncounted), ("status", counted("tasks"))),
    "roles": Told(
        ("roles", depths), ("/api/roles", sorted_by("role", "roles")), ("status", sorted_by("role", "roles"))
    ),
    "shares": Told(
        ("roles/crawl", part("shares", "accounts")),
        ("/api/shares?role=crawl", part("accounts")),
        ("accounts list crawl", part("accounts")),
    ),
    "policies": Told(("accounts", part("policies")), ("/api/accounts", part("accounts")), None),
    "locks": Told(("locks", part("locks", "locks")), ("/api/locks", part("locks")), ("locks list", part("locks"))),
    "a lock's queue": Told(
        ("locks/{lock}", part("queue")),
        ("/api/locks/queue?lock_key={lock}", part("queue")),
        ("locks show '{key}'", part("queue")),
    ),
    "workers": Told(("workers", part("workers")), ("/api/workers", part("workers")), ("workers list", part())),
    "schedules": Told(
        ("schedules", sorted_by("name", "schedules")),
        ("/api/admin/scheduled-jobs", lambda whole: [s for s in whole["scheduled_jobs"] if s["kind"] == "task"]),
        ("schedules list", lambda whole: [s for s in whole if s["kind"] == "task"]),
    ),
    "beats": Told(("schedules", part("beats")), ("/api/beats", part("beats")), ("status", part("beats"))),
    "failures": Told(
        ("failures?since=ever", part("failures", "groups")),
        ("/api/failures", part("groups")),
        ("failures list", part("groups")),
    ),
    "bulks": Told(("bulk", part("bulks")), ("/api/bulk", part("bulks")), ("bulks list", part())),
    "one bulk": Told(("bulk/1", part("bulk")), ("/api/bulk/1", part()), ("bulks show 1", part())),
    "decisions": Told(("decisions?role=crawl", part("passes")), ("/api/roles/crawl/passes", part("passes")), None),
    "capacity": Told(
        ("capacity", sorted_by("role", "capacity")),
        ("/api/tasks/capacity", sorted_by("role", "roles")),
        ("roles capacity", sorted_by("role")),
    ),
    "workflows": Told(
        ("workflows", part("workflows")), ("/api/workflows", part("workflows")), ("workflows list", part())
    ),
    "a workflow": Told(
        ("workflows/{evil}", part("whole")), ("/api/workflows/{evil}", part()), ("workflows show '{name}'", part())
    ),
    "dead letters": Told(
        ("dead-letters", part("letters")), ("/api/dead-letters", part("dead_letters")), ("dead-letters list", part())
    ),
    "a dead letter": Told(
        ("dead-letters/1", part("letter")), ("/api/dead-letters/1", part()), ("dead-letters show 1", part())
    ),
    "alerts": Told(("alerts", part("alerts")), ("/api/alerts", part("alerts")), ("alerts list", part("alerts"))),
    "audit": Told(("audit", part("trail", "items")), ("/api/audit", part("audit")), ("audit --limit 50", part())),
}

#: What the API works out of the others, or has beside each row where a page has a panel of its own.
DERIVED = {"held", "lacks", "fair_share", "held_share", "rounds_waited", "done_last_hour"}

#: What goes on while they are asked one after the other.
MOVES = {
    "age", "began", "heartbeat_age", "held_seconds", "late_by", "late_seconds", "oldest_ready_seconds",
    "oldest_wait_seconds", "seconds", "waits_seconds", "trend", "facts", "basis", "sentence", "expected", "headline",
}  # fmt: skip


#: Rates of the hour that goes on.
OF_THE_HOUR = {"avg_duration_sec", "tasks_per_worker_hour", "estimated_hours_to_drain"}


@pytest.fixture(scope="module")
def named(furnished_of_module: Site) -> Mapping[str, Any]:
    site, made = furnished_of_module, furnished_of_module.ids
    behind = site.rows("""INSERT INTO worker_tasks (task_id, role, lock_key) VALUES ('behind', 'crawl', :key)
        RETURNING id""", key=LOCK)  # fmt: skip
    assert behind
    site.rows("UPDATE scheduled_jobs SET last_report = '{}' WHERE kind = 'sweep'")
    site.rows("INSERT INTO task_events (task, role, kind, by) VALUES (:failed, 'crawl', 'retry', :by)", by=EVIL,
              failed=made["failed"])  # fmt: skip
    return {**made, "evil": QUOTED, "name": EVIL, "lock": quote(LOCK, safe=""), "key": LOCK}


@pytest.mark.parametrize("insight", ALIKE)
def test_page_api_and_command_line_tell_the_same(full: Site, named: Mapping[str, Any], insight: str) -> None:
    site, told = full, ALIKE[insight]
    (page, of_page), (path, of_api) = told.page, told.api
    head, mark, query = page.format(**named).partition("?")
    shown = of_page(site.get(f"{head}.json{mark}{query}", "admin").json())
    headers = {"Authorization": f"Bearer {site.tokens['admin']}"}
    answer = site.http.get(f"http://{site.host}{path.format(**named)}", headers=headers)
    assert answer.status_code == 200, answer.text
    served = of_api(answer.json())
    assert served not in ([], {}), "nothing to compare"
    assert differences(served, shown) == []
    if told.command is not None:
        command, of_command = told.command
        given = command.format(**named).split("'")
        arguments = [*given[0].split(), *given[1:2], "--json"]
        result = CliRunner().invoke(within_celery, arguments, obj=SimpleNamespace(app=site.app))
        assert result.exit_code == 0, result.output
        assert differences(served, of_command(json.loads(result.stdout))) == []


def differences(api: Any, other: Any, at: str = "") -> list[str]:
    """What `other` says otherwise of what the API tells."""
    if isinstance(api, dict) and isinstance(other, dict):
        shared = [name for name in api if name not in MOVES | DERIVED]
        missing = [f"{at}.{name} is missing" for name in shared if name not in other and api[name] is not None]
        return missing + [
            d for name in shared if name in other for d in differences(api[name], other[name], f"{at}.{name}")
        ]
    if isinstance(api, list) and isinstance(other, list) and len(api) == len(other):
        return [
            d
            for n, (one, same) in enumerate(zip(api, other, strict=True))
            for d in differences(one, same, f"{at}[{n}]")
        ]
    if at.rpartition(".")[2] in OF_THE_HOUR and api and other and math.isclose(api, other, rel_tol=0.02):
        return []
    return [] if plain(api) == plain(other) else [f"{at}: {api!r:.200} and {other!r:.200}"]


def plain(value: Any) -> Any:
    """An instant is one, however it is written."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) and len(value) > 18 else value
    except ValueError:
        return value
