"""Failures that are alike: one problem, its mark and its tasks."""

from __future__ import annotations

import html
import re

import pytest

from celeriac.dashboard import failures
from tests.api.works import task
from tests.dashboard.site import Site


def test_a_problem_is_marked_known_with_a_note_resolved_and_opens_by_itself(site: Site) -> None:
    task(site, "failed", "crawl")
    (group,) = site.get("failures.json").json()["failures"]["groups"]
    address = f"failures/{group['fingerprint']}"
    assert "✕ open" in site.html(address)
    assert site.told(f"{address}/mark", state="known", note="until <b>Monday</b>") == "It is marked as known."
    page = site.html(address)
    assert "◔ known" in page
    assert "“until &lt;b&gt;Monday&lt;/b&gt;”" in page
    assert "◔ known" in site.html("failures")
    assert "◔ known" not in site.html("failures?state=open")
    assert "No problem is open in this time" in site.html("failures?state=open")
    assert site.told(f"{address}/mark", state="resolved") == "It is marked as resolved."
    assert "✓ resolved" in site.html(address)
    task(site, "failed", "crawl")
    assert "✕ open again" in site.html(address)
    assert "give one of open, known, resolved" in site.told(f"{address}/mark", state="gone")
    assert site.get("failures?state=gone").status_code == 422
    marks = site.rows("SELECT before ->> 'state', after ->> 'state' FROM celeriac.audit ORDER BY id")
    assert marks == [("open", "known"), ("known", "resolved")]
    assert f'{group["fingerprint"]}/mark"' in site.html(address, "operate")
    assert f'{group["fingerprint"]}/mark"' not in site.html(address, "read")


def test_failures_are_told_by_their_problem(site: Site) -> None:
    failed = [task(site, "failed", "crawl") for _ in range(3)]
    site.rows("UPDATE celeriac.history SET error_message = 'HTTPError: 502 of store ' || id")
    group = site.get("failures.json").json()["failures"]["groups"][0]
    assert (group["count"], group["pattern"]) == (3, "HTTPError: # of store #")
    assert f"#{failed[-1]}" in site.html(f"failures/{group['fingerprint']}")
    asked = site.html(f"retry-failures/{group['fingerprint']}")
    assert "Retry 3 tasks" in asked
    assert site.get("failures/none").status_code == 404


def test_all_tasks_of_a_failure_are_listed_page_by_page(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [task(site, "failed", "crawl") for _ in range(3)]
    other = task(site, "failed", "resync")
    monkeypatch.setattr(failures, "ROWS", 2)
    found = {one["role"]: one["fingerprint"] for one in site.get("failures.json").json()["failures"]["groups"]}
    text = site.html(f"failures/{found['crawl']}")
    assert f'href="../failures/{found["crawl"]}/tasks?role=crawl">All of them' in text
    text = site.html(f"failures/{found['crawl']}/tasks")
    assert [f'id="task-{n}"' in text for n in (*made, other)] == [False, True, True, False]
    (older,) = re.findall(r'rel="next" href="([^"]+)"', text)
    text = site.html(f"failures/{found['crawl']}/tasks{html.unescape(older)}")
    assert [f'id="task-{n}"' in text for n in (*made, other)] == [True, False, False, False]
    assert site.get("failures/none/tasks").status_code == 404
