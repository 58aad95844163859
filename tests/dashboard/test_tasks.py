"""The list of tasks: chips that count what is pending by what it waits for, filters, columns."""

from __future__ import annotations

import re

import pytest

from celeriac.dashboard import columns, words
from tests.api.works import row, task
from tests.dashboard.site import Site


def listed(text: str) -> list[int]:
    return [int(number) for number in re.findall(r'<tr id="task-(\d+)"', text)]


def headings(text: str) -> list[str]:
    table = text.partition("<thead>")[2].partition("</thead>")[0]
    return re.findall(r'<th scope="col"[^>]*>([A-Z][^<]*)<', table)


def test_chips_split_what_is_pending_and_lead_to_just_those(site: Site) -> None:
    made = {
        "nothing": [task(site, role="crawl") for _ in range(3)],
        "time": [task(site, role="crawl", waits_for="time", scheduled_for="2100-01-01") for _ in range(2)],
        "account": [task(site, role="crawl", waits_for="account", account="a")],
    }
    task(site, "failed", role="crawl")
    task(site, role="resync")
    text = site.html("tasks?role=crawl")
    for reason in words.REASONS:
        n = len(made.get(reason, []))
        assert f'<b id="waiting-{reason}">{n}</b>' in text, reason
        assert f'href="?state=pending&amp;role=crawl&amp;waits={reason}"' in text, reason
        assert listed(site.html(f"tasks?state=pending&role=crawl&waits={reason}")) == made.get(reason, [])[::-1]
    assert '<b id="waiting-nothing">4</b>' in site.html("tasks"), "of all roles"


def test_a_range_of_priorities_and_a_schedule_mean_the_same_in_the_form_the_line_and_a_bulk(site: Site) -> None:
    low, tick = (task(site, role="crawl", priority=n) for n in (5, 60))
    site.rows("UPDATE celeriac.tasks SET task_id = 'nightly@2031-01-01T00:00:00Z' WHERE id = :i", i=tick)
    for query, line, meant in (
        ("priority=50..", "priority:50..", tick), ("priority=..10", "priority:..10", low),
        ("schedule=nightly", "schedule:nightly", tick),
    ):  # fmt: skip
        assert listed(site.html(f"tasks?{query}")) == [meant]
        assert site.get("tasks", params={"q": line}).headers["location"].endswith(f"tasks?{query}")
        assert f'value="{line}"' in site.html(f"tasks?{query}")
        assert "Cancel 1 task" in site.html(f"tasks/matching?move=cancel&{query}")
    bad = site.get("tasks", params={"q": "role:crawl priority:high"}).text
    assert "give a range like 50.., ..10 or 50..70" in bad
    page = site.html("tasks/matching?move=prioritise&priority=50..")
    form = page.partition('action="../bulk/prioritise"')[2].partition("</form>")[0]
    sent = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
    site.post("bulk/prioritise", **sent, to="70")
    assert site.rows.one("SELECT filter FROM celeriac.bulk_actions") == {"priority": "50.."}
    assert site.rows.one("SELECT priority FROM celeriac.bulk_actions") == 70
    assert row(site, low, "priority") == (5,)


def test_columns_stand_in_the_address_and_stay_while_one_filters(site: Site) -> None:
    task(site, "failed", role="crawl", lock_key="k")
    assert headings(site.html("tasks")) == ["Task", *(columns.COLUMNS[name] for name in columns.USUAL)]
    text = site.html("tasks?state=failed&columns=lock,role,name")
    assert headings(text) == ["Task", "Role", "Lock", "Task id"], "in the table's own order"
    assert 'href="?state=failed&amp;columns=role%2Clock"' in text, "without the task id"
    assert 'href="?columns=lock%2Crole%2Cname"' in text, "without the filter"
    assert text.count('name="columns" value="lock,role,name"') == 3, "the line, the form, and the view that is saved"
    line = site.get("tasks", params={"q": "role:crawl", "columns": "role"})
    assert line.headers["location"].endswith("tasks?role=crawl&columns=role")
    assert "no such column; there are role, account" in site.html("tasks?columns=role,price")
    site.post("views/mine", "read", name="mine", state="failed", columns="role")
    assert 'href="./tasks?state=failed&amp;columns=role">mine' in site.html("tasks", "read")


@pytest.mark.parametrize("name", columns.COLUMNS)
def test_each_column_can_be_taken_away_and_comes_back(site: Site, name: str) -> None:
    task(site, "running", role="crawl", unique_key="u")
    others = columns.switched(columns.USUAL, name)
    assert (columns.COLUMNS[name] in headings(site.html(f"tasks?columns={others}"))) is (name not in columns.USUAL)
    assert columns.switched(columns.chosen(others), name) is None, "the usual ones need no address"
