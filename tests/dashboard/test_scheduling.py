"""Schedules in the dashboard: made, edited, deleted and reset, by the rules of the API, each error beside its field."""

from __future__ import annotations

import html
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from celeriac.dashboard import page
from celeriac.schedules import operate, written
from celeriac.schedules.decide import Entry
from tests.api.works import audited, task
from tests.dashboard.site import Site
from tests.processes import until

NIGHTLY = {
    "name": "nightly", "target": "crawl", "cron_expression": "30 3 * * *", "timezone": "Asia/Kolkata",
    "kwargs": '{"store_id": 7}', "options": '{"account": "anna"}', "priority": "5", "misfire": "skip",
    "misfire_grace": "90", "overlap": "allow", "description": "each night", "enabled": "yes", "save": "yes",
}  # fmt: skip


def rows(site: Site) -> list[tuple[object, ...]]:
    return site.rows("SELECT name, cron_expression, priority, enabled FROM celeriac.scheduled_jobs ORDER BY name")


def wrong(site: Site, path: str, **fields: str) -> dict[str, str]:
    """What is said beside which field, of a form that is shown again."""
    answer = site.post(path, "admin", **fields)
    assert answer.status_code == 422, answer.text[:2000]
    said = dict(re.findall(r'<p class="wrong" id="wrong-(\w+)">✕ ([^<]+)<', answer.text))
    for name in said:
        assert re.search(rf'name="{name}"[^>]* aria-invalid="true" aria-describedby="wrong-{name}"', answer.text), name
    return {name: html.unescape(text) for name, text in said.items()}


TICKED = """
INSERT INTO celeriac.ticks (schedule, due_at, done_at, task_id, left_out, why)
SELECT s.id, at, at + interval '3 seconds', CASE WHEN i <> 2 THEN 'nightly@' || i END,
    CASE WHEN i <> 2 THEN 0 ELSE 7 END, CASE WHEN i = 2 THEN 'no beat ticked' END
FROM celeriac.scheduled_jobs s, generate_series(1, 70) i, LATERAL (SELECT now() - i * interval '1 minute' AS at) AS x"""


def test_the_last_ticks_are_a_strip_and_a_table_with_what_became_of_each(site: Site) -> None:
    site.post("new-schedule", "admin", **NIGHTLY)
    assert "None yet: the next one is due" in site.html("schedules/nightly")
    failed = task(site, "failed", role="crawl")
    site.rows("UPDATE celeriac.history SET task_id = 'nightly@1' WHERE id = :i", i=failed)
    site.rows(TICKED)
    for path in ("schedules", "schedules/nightly"):
        text = site.html(path)
        assert 'aria-label="the last 60 ticks: 59 made a task, 7 instants left out"' in text, path
        assert "Of 69 ticks in 24 h: p95 3 s, worst 3 s late." in text, path
    (line,) = re.findall(r'<tr id="schedule-\d+">.*?</tr>', site.html("schedules"), re.DOTALL)
    for says in (f"#{failed}<", "✕</span> failed", "+3 s", '<td class="figure">7</td>'):
        assert says in line, says
    table = text.partition('<th scope="col">Why left out')[2].partition("</table>")[0]
    assert table.count("<tr>") == 60
    assert "7 instants: no beat ticked" in table
    assert f"#{failed}<" in table
    assert "not kept" in table
    assert 'href="../tasks?role=crawl&amp;schedule=nightly"' in text
    site.rows("DELETE FROM celeriac.ticks WHERE due_at >= now() - interval '2 minutes 1 second'")
    site.rows(TICKED.replace("70", "2"))
    assert "✕ left out" not in site.html("schedules").partition("<tbody>")[2].partition("+3 s")[0]


def test_one_is_made_edited_and_deleted_and_the_trail_says_by_whom(site: Site) -> None:
    assert site.post("new-schedule", "admin", **NIGHTLY, why="asked for").headers["location"] == "./schedules/nightly"
    assert rows(site) == [("nightly", "30 3 * * *", 5, True)]
    number = site.rows.one("SELECT id FROM celeriac.scheduled_jobs")
    form = site.html("edit-schedule/nightly")
    seen = re.search(r'name="seen" value="([^"]+)"', form)
    assert seen
    assert html.escape('{"account": "anna"}').replace("&quot;", "&#34;") in form
    changed = NIGHTLY | {"cron_expression": "@hourly", "enabled": "", "seen": seen[1]}
    assert site.post("edit-schedule/nightly", "admin", **changed).status_code == 303
    assert rows(site) == [("nightly", "@hourly", 5, False)]
    assert (
        "somebody changed it meanwhile" in wrong(site, "edit-schedule/nightly", **changed | {"priority": "9"})["name"]
    )
    assert site.post("delete-schedule/nightly", "admin", why="sold").status_code == 303
    assert rows(site) == []
    trail = audited(site, "schedule", number)
    assert [(by, action, why) for by, action, _, _, why in trail] == [
        ("admin", "create", "asked for"), ("admin", "update", None), ("admin", "delete", "sold")
    ]  # fmt: skip


def test_of_two_editors_at_once_the_second_is_told_of_the_first(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PATIENCE", 60.0)
    site.post("new-schedule", "admin", **NIGHTLY)
    seen = re.search(r'name="seen" value="([^"]+)"', site.html("edit-schedule/nightly"))
    assert seen
    second = NIGHTLY | {"priority": "9", "seen": seen[1]}
    waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with ThreadPoolExecutor(1) as thread:
        with site.app.database.transaction() as first:
            written.change(first, operate.get(first, "nightly", lock=True), priority=7)
            told = thread.submit(wrong, site, "edit-schedule/nightly", **second)
            until(lambda: site.rows(waits), "the second to wait")
        assert "somebody changed it meanwhile" in told.result(timeout=10)["name"]
    assert rows(site) == [("nightly", "30 3 * * *", 7, True)]


def test_a_form_shows_the_next_five_in_two_zones_and_changes_nothing(site: Site) -> None:
    said = site.post("new-schedule", "admin", **NIGHTLY | {"preview": "yes"}).text
    instants = re.findall(r"<time[^>]*>\w{3} \d\d \w{3} \d{4} (\d\d:\d\d:\d\d)</time>", said)
    assert instants == ["03:30:00", "22:00:00"] * 5
    assert "In Asia/Kolkata" in said
    assert "In UTC" in said
    assert rows(site) == []


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"name": ""}, "name", "printable characters"),
        ({"target": "nobody"}, "target", "no role 'nobody'"),
        ({"cron_expression": "61 * * * *"}, "cron_expression", "61"),
        ({"cron_expression": ""}, "cron_expression", ""),
        ({"timezone": "Mars/Olympus"}, "timezone", "Mars/Olympus"),
        ({"kwargs": "{"}, "kwargs", "no JSON"),
        ({"kwargs": "[" * 50_000}, "kwargs", "no JSON"),
        ({"kwargs": '{"store_id": 7, "colour": 1}'}, "kwargs", "colour"),
        ({"options": '{"colour": 1}'}, "options", "no option 'colour'"),
        ({"options": '{"timeout": -1}'}, "options", "timeout"),
        ({"priority": "high"}, "priority", "a whole number"),
        ({"priority": "9" * 18}, "priority", "priority"),
        ({"misfire": "twice"}, "misfire", "give one of"),
        ({"misfire_grace": "soon"}, "misfire_grace", "give seconds"),
        ({"misfire_grace": "nan"}, "misfire_grace", "year"),
        ({"overlap": "?"}, "overlap", "give one of"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(site: Site, fields: dict[str, str], field: str, says: str) -> None:
    found = wrong(site, "new-schedule", **NIGHTLY | fields)
    assert says in found.get(field, ""), found
    assert rows(site) == []


def test_a_name_that_is_taken_is_said_and_all_that_is_wrong_at_once(site: Site) -> None:
    site.post("new-schedule", "admin", **NIGHTLY)
    assert "there is a schedule named" in wrong(site, "new-schedule", **NIGHTLY)["name"]
    both = wrong(site, "new-schedule", **NIGHTLY | {"kwargs": "{", "priority": "x", "timezone": "Mars"})
    assert set(both) == {"kwargs", "priority", "timezone"}


def test_one_of_the_code_keeps_its_name_is_not_deleted_and_can_be_reset(site: Site) -> None:
    entry = Entry(name="nightly", kind="task", target="crawl", cron_expression="@daily", kwargs={"store_id": 7})
    with site.app.database.transaction() as connection:
        written.install(connection, [entry], "beat x", 1, "beat")
    form = site.html("edit-schedule/nightly")
    assert re.search(r'name="name"[^>]* readonly', form)
    seen = re.search(r'name="seen" value="([^"]+)"', form)
    assert seen
    same = NIGHTLY | {"options": "{}", "priority": "", "misfire": "once", "misfire_grace": "60", "overlap": "skip"}
    same |= {"timezone": "UTC", "description": "", "seen": seen[1]}
    assert "its name is that of its entry" in wrong(site, "edit-schedule/nightly", **same | {"name": "x"})["name"]
    assert site.post("edit-schedule/nightly", "admin", **same).status_code == 303
    shown = site.html("schedules/nightly")
    assert "The code says <code>cron_expression</code> &#34;@daily&#34;." in shown
    assert "Delete nightly" not in shown
    site.post("delete-schedule/nightly", "admin")
    assert rows(site) == [("nightly", "30 3 * * *", None, True)]
    site.post("reset-schedule/nightly", "admin")
    assert rows(site) == [("nightly", "@daily", None, True)]
    assert "Reset to declared" not in site.html("schedules/nightly")


def test_a_sweep_is_edited_without_what_concerns_tasks(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kind)
        VALUES ('rescue', 'rescue', '@every 30s', 'sweep')""")
    form = site.html("edit-schedule/rescue")
    assert 'name="kwargs"' not in form
    seen = re.search(r'name="seen" value="([^"]+)"', form)
    assert seen
    said = {name: value for name, value in NIGHTLY.items() if name not in ("kwargs", "options", "priority", "target")}
    said |= {"name": "rescue", "cron_expression": "@every 1m", "timezone": "UTC", "seen": seen[1]}
    assert site.post("edit-schedule/rescue", "admin", **said).status_code == 303
    assert rows(site) == [("rescue", "@every 1m", None, True)]
