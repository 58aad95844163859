"""A task's page: its attempts and what follows, what it enqueued, its workflow, and itself as commands."""

from __future__ import annotations

import json
import re

import pytest

from celeriac.dashboard import reading
from tests.api.works import row, task
from tests.dashboard.site import Site


def text_of(html: str, start: str, end: str) -> str:
    return html.partition(start)[2].partition(end)[0]


def test_what_takes_too_long_to_explain_is_explained_in_part(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = task(site, "pending", "crawl")
    monkeypatch.setattr(reading, "TIMEOUT", 0.3)
    with site.locked("ready_0"):
        text = site.html(f"tasks/{made}")
        why = site.get(f"tasks/{made}.json").json()["why"]
    assert "Why it waits is known in part: turn took too long to check." in text
    assert [one["outcome"] for one in why["checks"]][:8] == ["yes"] * 8
    told = {one["name"]: (one["outcome"], one["sentence"]) for one in why["checks"]}
    assert told["turn"] == ("unknown", "this took too long to check")
    assert told["worker"] == ("not asked", "not checked: there was no time left")
    assert (why["reason"], why["expected"]) == ("unknown", None)


def test_attempts_are_told_newest_first_with_what_follows(site: Site) -> None:
    declared = json.dumps({"backoff": {"base": 2, "maximum": 600, "jitter": True}, "round_delay": 60})
    site.rows("UPDATE celeriac.roles SET definition = definition || CAST(:d AS jsonb) WHERE role = 'crawl'", d=declared)
    made = task(site, "pending", "crawl", retry_count=2, max_retries=4, tries=1, max_rounds=3)
    for n in (1, 2):
        site.rows(
            """INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
            VALUES (:task, 'crawl', 'retry', 'running', 'pending', 'w', :why)""", task=made, why=f"ValueError: no. {n}",
        )  # fmt: skip
    page = site.html(f"tasks/{made}")
    assert "Attempt 3 of 5, in round 2 of 3. If it fails and is to be retried, it is at most 8 s later" in page
    assert page.index('id="attempt-2"') < page.index('id="attempt-1"')
    assert "ValueError: no. 2" in text_of(page, 'id="attempt-2"', "</li>")


def test_a_task_stands_among_the_last_of_its_role_and_may_go_on_from_where_it_stopped(site: Site) -> None:
    others, failed = [task(site, "completed", "crawl") for _ in range(3)], task(site, "failed", "crawl")
    said = site.html(f"tasks/{failed}")
    strip = text_of(said, '<h2 id="runs">', "</section>")
    assert strip.startswith("The last 4 of crawl that ended")
    assert [int(n) for n in re.findall(r"<title>#(\d+) ", strip)] == [*others, failed], "the newest at the right"
    assert f"<title>#{failed} failed, 0 s: this one</title>" in strip
    assert "Retry from where it stopped" in said
    assert site.told(f"tasks/{failed}/retry", goes_on="yes") == "It will go on from where it stopped."
    assert row(site, failed, "status, retry_count") == ("pending", 3)


def test_what_its_handler_logged_stands_on_its_page(site: Site) -> None:
    made = task(site, "failed", "crawl")
    assert '<h2 id="log">' not in site.html(f"tasks/{made}")
    site.rows("INSERT INTO task_logs (task, attempt, level, line) VALUES (:id, 2, 'INFO', '<b>page</b> 7')", id=made)
    log = text_of(site.html(f"tasks/{made}"), '<h2 id="log">', "</section>")
    assert '<td>info</td><td class="error">&lt;b&gt;page&lt;/b&gt; 7</td>' in log


def test_an_admin_gives_a_task_that_waits_other_arguments(site: Site) -> None:
    waits = task(site, "pending", "crawl", kwargs='{"store_id": 7}')
    assert "Other arguments…" in site.html(f"tasks/{waits}")
    assert "Other arguments…" not in site.html(f"tasks/{waits}", "operate")
    assert site.post(f"tasks/{waits}/arguments", "operate", arguments='{"store_id": 8}').status_code == 403
    assert site.post(f"tasks/{waits}/arguments", "admin", arguments='{"store_id": 8}').status_code == 303
    assert row(site, waits, "kwargs") == ({"store_id": 8},)


def test_the_traceback_is_folded_and_only_for_who_may_see_arguments(site: Site) -> None:
    made = task(site, "failed", "crawl")
    told = json.dumps({"exc_type": "ValueError", "traceback": "File crawl.py, line 7"})
    site.rows("UPDATE celeriac.history SET result = CAST(:told AS jsonb) WHERE id = :id", told=told, id=made)
    assert "File crawl.py, line 7" in text_of(site.html(f"tasks/{made}"), '<details id="traceback">', "</details>")


def test_what_it_enqueued_and_its_workflow_are_linked(site: Site) -> None:
    made = task(site, "running", "crawl", workflow="nightly/7")
    there, over = task(site, "pending", "resync", parent_id=made), task(site, "completed", "resync", parent_id=made)
    page = site.html(f"tasks/{made}")
    section = text_of(page, 'id="children"', "</section>")
    assert section.index(f'id="child-{there}"') < section.index(f'id="child-{over}"')
    assert f'tasks/{there}"' in section
    assert 'workflows/nightly%2F7"' in page
    assert 'id="children"' not in site.html(f"tasks/{there}")


def test_more_children_than_are_told_are_said_to_be_more(site: Site) -> None:
    made = task(site, "running", "crawl")
    site.rows(
        """INSERT INTO worker_tasks (task_id, role, parent_id)
        SELECT 'child ' || i, 'resync', :made FROM generate_series(1, 60) AS i""", made=made,
    )  # fmt: skip
    page = site.html(f"tasks/{made}")
    assert page.count('id="child-') == 50
    assert "There may be more" in page


def test_it_is_told_as_commands_that_there_are(site: Site) -> None:
    made = task(site, "failed", "crawl")
    told = text_of(site.html(f"tasks/{made}"), '<details id="copy">', "</details>")
    assert f"celeriac tasks retry {made}\n" in told
    assert "celeriac why" not in told
    address = told.partition('$CELERIAC_TOKEN" ')[2].partition("<")[0]
    assert address == f"http://{site.host}/api/tasks/{made}"


def test_the_way_through_the_states_is_drawn_of_what_is_stored(site: Site) -> None:
    made = task(site, "running", "crawl")
    site.rows("UPDATE celeriac.tasks SET created_at = now() - interval '9 minutes' WHERE id = :id", id=made)
    claimed = "claimed_at = now() - interval '2 minutes', started_at = now() - interval '1 minute'"
    site.rows(f"UPDATE celeriac.tickets SET {claimed}")
    site.rows(
        """INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, at)
        VALUES (:task, 'crawl', 'retry', 'running', 'pending', 'w', now() - interval '5 minutes')""", task=made,
    )  # fmt: skip
    text = site.html(f"tasks/{made}")
    stops = [text_of(text, f'<li id="stop-{n}">', "</li>") for n in range(1, 6)]
    words = ("pending", "running", "pending", "claimed", "running")
    assert [word in stop for word, stop in zip(words, stops, strict=True)] == [True] * 5
    assert "since when is not kept" in stops[1]
    assert ["for 3 m" in stops[2], "for 1 m" in stops[3], "since <time" in stops[4]] == [True] * 3
    assert '<td class="figure">4 m</td>' in text_of(text, 'id="event-', "</tr>")
