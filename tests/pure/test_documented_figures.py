"""The figures of the application are those of the documents."""

from __future__ import annotations

import os
import sys

import pytest
from sqlalchemy.dialects import postgresql

from beat import HOOKS
from celeriac import Settings
from celeriac.cli.stack import serve
from celeriac.schedules.listed import entries
from celeriac.store import states
from celeriac.worker.limits import tasks_that_fit
from tasks import app, stale_thumbnails, stores, subreddits, thumbnails
from tasks.instasites import build
from tests.api.described import document
from tests.processes import finished

SCHEDULES = {
    "fix-stale-thumbnails": "0 * * * *",
    "store discovery dutchie": "0 3 * * *",
    "resyncs": "0 */4 * * *",
    "analytics": "0 5 * * *",
    "stale subreddits": "0 */6 * * *",
    "sweep aging": "*/5 * * * *",
    "sweep review": "@every 310s",
}


def test_schedules_run_when_the_documents_say() -> None:
    there = {name: entry.cron_expression for name, entry in entries(app, {}).items()}
    assert there | SCHEDULES == there


def test_every_hook_of_the_documents_has_its_schedule() -> None:
    assert {"instasites/build", "sites/fixStaleThumbnails"} <= set(HOOKS)
    assert set(HOOKS.values()) <= set(entries(app, {}))


def test_the_api_listens_where_the_documents_call_it() -> None:
    assert {option.name: option.default for option in serve.params}["port"] == 6002


def test_a_thumbnail_is_stale_when_the_documents_say() -> None:
    production = stale_thumbnails.stale_after({"NODE_ENV": "production"})
    assert (production, stale_thumbnails.stale_after({"NODE_ENV": "development"})) == (7200, 900)
    assert production == 40 * thumbnails.TIMEOUT


def test_a_reset_touches_the_two_fields_alone() -> None:
    for site in thumbnails.SITES.values():
        changed = stale_thumbnails.reset(site, 7200).compile(dialect=postgresql.dialect())
        setting = str(changed).partition(" SET ")[2].partition(" WHERE ")[0]
        assert [part.partition("=")[0].strip() for part in setting.split(",")] == [
            "thumbnail_build_in_progress", "thumbnail_process_started_at", "updated_at"
        ]  # fmt: skip


def test_more_builds_can_be_in_flight_than_a_pass_gives_out() -> None:
    """120 a minute need more than 60 at once where one takes a minute."""
    asked = "from tasks.instasites import build as b; print(b.role.batch_size, b.role.window)"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("QM_INSTASITES")}
    told = finished([sys.executable, "-c", asked], environ | {"QM_INSTASITES_WINDOW": "120"})
    assert told.stdout.split() == ["60", "120"]


def test_a_build_is_attempted_as_the_documents_say() -> None:
    role = build.role
    assert (role.batch_size, role.window, role.every, role.prompt) == (60, 60, 30, False)
    assert (role.max_retries, role.max_rounds, role.keep) == (4, 5, None)
    assert role.backoff
    assert (role.backoff.base, role.backoff.maximum) == (5, 40)


def test_a_crawl_is_attempted_as_the_documents_say() -> None:
    role = subreddits.crawl.role
    assert (role.priority, role.priority_range, role.max_retries) == (0, (0, 100), 3)
    assert 50 <= subreddits.USERS_PRIORITY <= 70


def test_workers_have_the_documents_defaults() -> None:
    s = Settings()
    assert (s.heartbeat_interval, s.max_concurrent_tasks, s.backoff_duration) == (30, 3, 10)
    assert (s.memory_backoff, s.cpu_backoff, s.master_interval) == (0.85, 0.90, 310)
    assert {task.role.stale_after for task in (stores.store_discovery, *stores.PER_STORE)} == {600}
    assert {task.role.max_retries for task in (stores.store_discovery, *stores.PER_STORE)} == {3}


def test_memory_has_room_for_as_many_browsers_as_the_documents_say() -> None:
    each = thumbnails.build_thumbnail.role.memory_per_task
    assert each == 400
    assert [tasks_that_fit(limit, each) for limit in (2000, 2560)] == [3, 4]


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("waiting", "pending"), ("delayed", "pending"), ("active", "running"), ("terminated", "failed"),
        ("crawling", "running"), ("success", "completed"), ("failed", "failed"), ("cancelled", "cancelled"),
    ],
)  # fmt: skip
def test_the_documents_words_for_a_status_mean_ours(word: str, ours: str) -> None:
    assert states.statuses_of(word) == (ours,)


def test_lists_have_the_documents_defaults() -> None:
    paths = document()["paths"]
    for path in ("/api/admin/jobs", "/api/admin/scheduled-jobs"):
        defaults = {given["name"]: given["schema"].get("default") for given in paths[path]["get"]["parameters"]}
        assert (defaults["limit"], defaults["offset"]) == (100, 0)
