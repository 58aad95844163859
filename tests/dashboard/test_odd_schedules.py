"""Schedules whose names look like numbers, paths, options or commands are the same schedule on every surface."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping

import pytest
from sqlalchemy.exc import IntegrityError

from celeriac.errors import BadValue
from celeriac.roles.bounds import NAME
from celeriac.schedules import operate
from celeriac.schedules.decide import Entry
from celeriac.schedules.timetable import Timetable
from tests.dashboard.odd import NAMES, NO_NAMES, api, command, done, followed, links, ok, panel, pressed, quoted
from tests.dashboard.site import Site

JOBS = "admin/scheduled-jobs"

FORM = {
    "target": "crawl", "cron_expression": "@daily", "kwargs": '{"store_id": 1}', "misfire": "once",
    "misfire_grace": "60", "overlap": "skip", "enabled": "yes",
}  # fmt: skip


def by_python(site: Site, name: str) -> None:
    entry = Entry(name=name, kind="task", target="crawl", cron_expression="@daily", kwargs={"store_id": 1})
    operate.create(site.app, entry, by="test")


def by_sql(site: Site, name: str) -> None:
    site.rows(
        "INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kwargs) VALUES (:name, 'crawl', '@daily',"
        " '{\"store_id\": 1}')",
        name=name,
    )


def by_http(site: Site, name: str) -> None:
    ok(site, "POST", JOBS, json={"name": name, "role": "crawl", "cron_expression": "@daily", "store_id": 1})


def by_command(site: Site, name: str) -> None:
    done(site, "schedules", "add", "--", name, "@daily", "crawl", "store_id=1")


def by_dashboard(site: Site, name: str) -> None:
    answer = site.post("new-schedule", "admin", **FORM | {"name": name})
    assert answer.status_code == 303, answer.text[:2000]


MAKERS: Mapping[str, Callable[[Site, str], None]] = {
    "Python": by_python, "SQL": by_sql, "HTTP": by_http, "command line": by_command, "dashboard": by_dashboard,
}  # fmt: skip


def expressions(site: Site) -> dict[str, str]:
    return dict(site.rows("SELECT name, cron_expression FROM celeriac.scheduled_jobs"))


@pytest.mark.parametrize("surface", MAKERS)
def test_an_odd_name_is_given_on_every_surface(site: Site, surface: str) -> None:
    for name in NAMES:
        MAKERS[surface](site, name)
    assert set(expressions(site)) == {*NAMES}
    listed = ok(site, "GET", f"{JOBS}?limit=100")["scheduled_jobs"]
    assert {one["name"] for one in listed} == {one["name"] for one in done(site, "schedules", "list")} == {*NAMES}


def test_each_surface_changes_switches_runs_and_shows_the_schedule_of_that_name_alone(site: Site) -> None:
    for name in NAMES:
        by_python(site, name)
    jobs = {one["name"]: one["id"] for one in ok(site, "GET", f"{JOBS}?limit=100")["scheduled_jobs"]}
    pages = links(site, "schedules")
    for name in NAMES:
        others = {other: when for other, when in expressions(site).items() if other != name}
        page, job = pages[name], f"{JOBS}/{jobs[name]}"

        def when() -> str:
            now = expressions(site)
            assert {other: now[other] for other in now if other != name} == others, name  # noqa: B023
            return now[name]  # noqa: B023

        operate.change(site.app, name, {"cron_expression": "@every 1h"}, by="test")
        assert when() == ok(site, "GET", job)["cron_expression"] == "@every 1h"
        site.rows("UPDATE celeriac.scheduled_jobs SET cron_expression = '@every 2h' WHERE name = :name", name=name)
        assert panel(site, f"{page.removesuffix('.html')}.json", "schedule")["cron_expression"] == when() == "@every 2h"
        assert ok(site, "PUT", job, json={"cron_expression": "@every 3h"})["name"] == name
        assert when() == "@every 3h"
        done(site, "schedules", "edit", "--expression", "@every 4h", "--", name)
        assert when() == "@every 4h"
        edit = followed(site, page, f"Edit {name}…")
        (seen,) = re.findall(r'name="seen" value="([^"]*)"', site.html(edit))
        fields = FORM | {"name": name, "cron_expression": "@every 5h", "seen": html.unescape(seen)}
        sent = site.post(edit, "admin", **fields)
        assert sent.status_code == 303, (name, sent.text[:1000])
        assert when() == "@every 5h"

        assert done(site, "schedules", "toggle", "--", name, "off")["enabled"] is False
        assert ok(site, "POST", f"{job}/toggle", json={"enabled": True})["enabled"] is True
        assert pressed(site, page, "switch-schedule", enabled="") == page
        assert operate.toggle(site.app, name, True, by="test")["enabled"] is True

        first = operate.run_now(site.app, name, by="test").result
        assert first.rpartition("@")[0] == name
        assert ok(site, "POST", f"{job}/run-now")["told"] == first, name
        assert done(site, "schedules", "run-now", "--", name) == {"name": name, "told": first, "ran": False}
        assert pressed(site, page, "run-schedule") == page
        assert site.rows.one("SELECT count(*) FROM worker_tasks WHERE role = 'crawl'") == 1, name
        site.rows("DELETE FROM worker_tasks")


def test_the_tasks_of_its_ticks_are_told_apart_on_every_surface(site: Site) -> None:
    for name in NAMES:
        by_python(site, name)
    site.rows("UPDATE celeriac.scheduled_jobs SET planned_as = timezone || '|' || cron_expression, next_run_at = now()")
    timetable = Timetable(site.app)
    while timetable.tick() is not None:
        pass
    for name in NAMES:
        ((job, last),) = site.rows("SELECT id, last_task_id FROM celeriac.scheduled_jobs WHERE name = :name", name=name)
        row = site.rows.one("SELECT id FROM worker_tasks WHERE task_id = :task_id", task_id=last)
        (listed,) = ok(site, "GET", f"tasks?schedule={quoted(name)}")["tasks"]
        (told,) = done(site, "tasks", "list", "--schedule", name)["items"]
        (shown,) = panel(site, f"tasks.json?schedule={quoted(name)}", "tasks")["items"]
        (tick,) = ok(site, "GET", f"{JOBS}/{job}/ticks")["ticks"]
        assert {listed["id"], told["id"], shown["id"], tick["id"]} == {row}, name
        (sql,) = re.findall(r"SELECT [^<]*starts_with[^<]*", site.html(f"tasks?schedule={quoted(name)}"))
        assert [one[0] for one in site.rows(html.unescape(sql).replace(":", r"\:"))] == [row], name
    assert site.rows.one("SELECT count(*) FROM worker_tasks") == len(NAMES)


@pytest.mark.parametrize("name", NO_NAMES, ids=ascii)
def test_no_surface_takes_a_name_that_another_refuses_and_all_say_the_same(site: Site, name: str) -> None:
    with pytest.raises(BadValue) as python:
        by_python(site, name)
    with pytest.raises(IntegrityError) as sql:
        by_sql(site, name)
    body = {"name": name, "role": "crawl", "cron_expression": "@daily", "store_id": 1}
    http = api(site, "POST", JOBS, json=body)
    line = command(site, "schedules", "add", "--", name, "@daily", "crawl", "store_id=1")
    page = site.post("new-schedule", "admin", **FORM | {"name": name})
    said = [str(python.value), str(sql.value.orig), json.dumps(http.json()), line.stderr, html.unescape(page.text)]
    assert [NAME.right in one for one in said] == [True] * 5, said[:4]
    assert (http.status_code, line.exit_code, page.status_code) == (422, 3, 422)
    by_python(site, "plain")
    with pytest.raises(BadValue, match="printable"):
        operate.change(site.app, "plain", {"name": name}, by="test")
    assert [*expressions(site)] == ["plain"]
