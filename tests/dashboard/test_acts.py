"""What the buttons do: the verbs of the API and the command line, told on the page that follows, and audited."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib import import_module
from urllib.parse import unquote

import pytest

from celeriac.operate import tokens
from celeriac.operate.allowed import Allowed
from tests.api.works import audited, row, task
from tests.dashboard.site import Site, worker


def test_a_failed_task_is_retried_and_the_trail_says_by_whom(site: Site) -> None:
    failed = task(site, "failed", "crawl")
    assert site.told(f"tasks/{failed}/retry", why="mended") == "It will run again."
    assert row(site, failed, "status") == ("pending",)
    assert [(a[0], a[1], a[4]) for a in audited(site, "task", failed)] == [("operate", "retry", "mended")]


def test_what_is_refused_is_said_and_changes_nothing(site: Site) -> None:
    over = task(site, "completed", "crawl")
    assert "only what failed or was cancelled can be retried" in site.told(f"tasks/{over}/retry")
    assert "give a whole number" in site.told(f"tasks/{task(site)}/priority", priority="high")
    assert row(site, over, "status") == ("completed",)


def test_a_retry_that_collides_with_a_unique_key_says_with_which_task(site: Site) -> None:
    failed = task(site, "failed", "crawl", unique_key="store 7")
    other = task(site, "pending", "crawl", unique_key="store 7")
    assert f"task {other} has its unique key" in site.told(f"tasks/{failed}/retry")


def test_a_waiting_task_is_cancelled_a_running_one_is_told_to_stop(site: Site) -> None:
    waiting, running = task(site, "pending", "crawl"), task(site, "running", "crawl")
    assert site.told(f"tasks/{waiting}/cancel", why="sold") == "It is cancelled."
    assert site.told(f"tasks/{running}/cancel") == "It was told to stop."
    assert row(site, waiting, "status, error_message") == ("cancelled", "sold")


def test_priority_is_set_boosted_and_what_waits_for_its_time_is_due_now(site: Site) -> None:
    waiting = task(site, "pending", "crawl")
    assert site.told(f"tasks/{waiting}/priority", priority=5) == "Its priority is 5, it was 0."
    site.told(f"tasks/{waiting}/boost")
    assert row(site, waiting, "priority") == (25,)
    with site.app.database.transaction() as connection:
        later = site.app.send_task("crawl", kwargs={"store_id": 1}, countdown=1000, connection=connection).id
    number = site.rows.one("SELECT id FROM tasks WHERE task_id = :id", id=later)
    assert site.told(f"tasks/{number}/now") == "It is due now."
    assert site.rows.one("SELECT scheduled_for <= now() FROM tasks WHERE id = :id", id=number) is True


def test_a_new_task_is_made_field_by_field_from_the_parameters_of_its_role(site: Site) -> None:
    for path in ("new-task?role=crawl", "roles/crawl"):
        fields = re.findall(r'<input name="arg\.(\w+)"( required)?(?: placeholder="(\w+)")?>', site.html(path))
        assert fields == [("store_id", " required", ""), ("account_id", "", "0")], path
    assert "<option>crawl</option>" in site.html("new-task")
    assert 'href="./new-task?role=crawl"' in site.html("tasks?role=crawl")
    assert site.get("new-task?role=nobody", "admin").status_code == 404
    assert site.get("new-task", "read").status_code == 403
    given = {"arg.store_id": "7", "arg.account_id": "", "kwargs": "", "lock_key": "k"}
    assert site.post("enqueue/crawl", "admin", **given).status_code == 303
    given = {"arg.store_id": '"seven"', "kwargs": '{"account_id": 3}'}
    assert site.post("enqueue/crawl", "admin", **given).status_code == 303
    assert site.rows("SELECT kwargs, lock_key FROM tasks ORDER BY id") == [
        ({"store_id": 7}, "k"), ({"store_id": "seven", "account_id": 3}, None)
    ]  # fmt: skip


def test_a_role_is_paused_for_a_time(site: Site) -> None:
    assert site.told("pause-role/crawl", why="slow", **{"for": "2h"}).startswith("crawl is paused for 2 h: ")
    assert "It is resumed by itself at" in site.html("roles/crawl")
    assert "give a time like 30s" in site.told("pause-role/resync", **{"for": "soon"})
    assert site.rows("SELECT role FROM celeriac.roles WHERE paused") == [("crawl",)]


def test_however_long_what_is_told_a_browser_keeps_it(site: Site) -> None:
    refused = site.post("enqueue/crawl", "admin", kwargs=json.dumps({"store_id": 1, "✕" * 3000: 1}))
    cookie = refused.headers["set-cookie"]
    assert len(cookie) < 4096
    assert unquote(cookie.partition(";")[0]).endswith("✕…")


def test_a_task_is_enqueued_by_the_same_rules_and_another_like_it(site: Site) -> None:
    asked = site.post("enqueue/crawl", "admin", kwargs='{"store_id": 7, "account_id": 3}', priority="5")
    number = int(asked.headers["location"].rpartition("/")[2])
    assert row(site, number, "role, account, priority, enqueued_by") == ("crawl", "3", 5, "admin")
    again = site.post(f"tasks/{number}/duplicate", "admin")
    other = int(again.headers["location"].rpartition("/")[2])
    assert other != number
    assert row(site, other, "kwargs, account, priority") == ({"store_id": 7, "account_id": 3}, "3", 5)
    assert [a[1] for a in audited(site, "task", other)] == ["enqueue"]
    for wrong in ("{", "[7]", '{"colour": "red"}'):
        refused = site.post("enqueue/crawl", "admin", kwargs=wrong)
        assert refused.headers["location"] == "../roles/crawl", wrong
    assert site.post("enqueue/crawl", "operate", kwargs="{}").status_code == 403
    with site.app.database.transaction() as connection:
        site.tokens["limited"] = tokens.create(
            connection, "limited", ["enqueue"], by="test", allowed=Allowed.of(["resync"])
        )
    refused = unquote(site.post("enqueue/crawl", "limited", kwargs='{"store_id": 7}').headers["set-cookie"])
    assert "may not enqueue the role 'crawl', only resync" in refused
    assert site.rows("SELECT FROM worker_tasks WHERE enqueued_by = 'limited'") == []


def test_a_role_is_paused_resumed_and_limited(site: Site) -> None:
    assert "crawl is paused" in site.told("pause-role/crawl", why="the store is down")
    assert "❚❚ paused" in site.html("roles/crawl")
    assert site.told("resume-role/crawl") == "crawl is resumed."
    assert site.told("limits-of-role/crawl", rate_limit="10/m", timeout="30") == "crawl: rate_limit=10/m, timeout=30.0."
    assert site.told("limits-of-role/crawl", rate_limit="none", timeout="none") == "crawl: no limits."
    assert "Nothing was changed" in site.told("limits-of-role/crawl", timeout="soon")
    assert [a[1] for a in audited(site, "role", "crawl")] == ["pause", "resume", "limits", "limits"]


def test_what_operators_said_of_a_role_stands_beside_what_is_declared(site: Site) -> None:
    def option(name: str) -> str:
        return site.html("roles/crawl").partition(f'<tr id="option-{name}">')[2].partition("</tr>")[0]

    assert "as declared" in option("rate_limit")
    assert "60" in option("window")
    assert "Reset to declared" not in site.html("roles/crawl")
    site.told("limits-of-role/crawl", rate_limit="10/m", timeout="30", why="the store is slow")
    assert "by an operator" in option("rate_limit")
    assert "by an operator" in option("timeout")
    assert "as declared" in option("hard_timeout")
    assert "“the store is slow”" in site.html("roles/crawl")
    assert site.told("reset-limits-of-role/crawl") == "The limits of crawl are as declared again."
    assert "as declared" in option("timeout")
    assert "Nothing was changed" in unquote(site.post("reset-limits-of-role/nobody").headers["set-cookie"])


def test_whether_a_pass_is_asked_for_is_said_as_it_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert site.told("pass-of-role/crawl") == "A pass of crawl was asked for."
    refused = site.post("pass-of-role/nobody").headers["set-cookie"]
    assert "Nothing was changed" in unquote(refused)
    monkeypatch.setattr(site.app.publisher, "kick", lambda *_: False)
    assert "Redis does not answer" in site.told("pass-of-role/crawl")
    slow = replace(site.app.role_declared("crawl")[0], prompt=False)
    monkeypatch.setattr(site.app, "role_declared", lambda _: (slow, None))
    assert "crawl is not prompt" in site.told("pass-of-role/crawl")


def test_an_account_gets_a_weight_a_cap_and_a_pause(site: Site) -> None:
    assert "Nothing was changed" in site.told("set-account/anna/berlin", weight="2.5", cap="3")
    assert "Nothing was changed" in site.told("pause-account/anna/berlin")
    assert 'name="create"' in site.html("accounts/anna/berlin")
    assert (
        site.told("set-account/anna/berlin", weight="2.5", cap="3", create="yes") == "anna/berlin: weight 2.5, cap 3."
    )
    assert 'name="create"' not in site.html("accounts/anna/berlin")
    site.told("pause-account/anna/berlin", why="unpaid")
    assert "It is paused" in site.html("accounts/anna/berlin")
    site.told("resume-account/anna/berlin")
    assert site.told("set-account/anna/berlin", cap="none") == "anna/berlin: cap None."
    assert site.rows("SELECT weight, cap, paused FROM celeriac.account_policies") == [(2.5, None, False)]


def test_an_account_whose_name_ends_like_a_file_is_the_one_that_is_paused(site: Site) -> None:
    site.post("pause-account/feed.json", create="yes")
    assert site.rows("SELECT account FROM celeriac.account_policies") == [("feed.json",)]


def test_a_worker_is_drained(site: Site) -> None:
    """After a question that names what may be handed back; taken back, as long as it has not heard."""
    worker(site, "celery@node/7")
    running = task(site, "running", "crawl")
    site.rows("UPDATE celeriac.tickets SET worker_id = 'celery@node/7'")
    asked = site.post("drain-worker/celery@node/7")
    assert (asked.status_code, f'id="task-{running}"' in asked.text) == (200, True)
    assert "What is not finished 25 s after it heard is handed back" in asked.text
    assert site.rows("SELECT status FROM celeriac.workers") == [("active",)]
    assert "celery@node/7 was told" in site.told("drain-worker/celery@node/7", sure="yes")
    assert "Draining" in site.html("workers")
    assert "It has not heard yet" in site.html("workers/celery@node/7")
    assert site.told("resume-worker/celery@node/7") == "celery@node/7 goes on."
    assert site.rows("SELECT status FROM celeriac.workers") == [("active",)]
    site.told("drain-worker/celery@node/7", sure="yes")
    site.rows("UPDATE celeriac.workers SET last_heartbeat_at = clock_timestamp()")
    assert "It has not heard yet" not in site.html("workers/celery@node/7")
    assert "has heard that it is to end" in site.told("resume-worker/celery@node/7")


def test_a_schedule_is_switched_and_run(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kwargs)
        VALUES ('nightly', 'crawl', '@daily', '{"store_id": 7}')""")
    assert site.told("switch-schedule/nightly", enabled="no") == "nightly is switched off."
    assert site.told("run-schedule/nightly").startswith("nightly was run: ")
    assert site.rows("SELECT role FROM tasks") == [("crawl",)]
    told = (
        f"Nothing was enqueued: the last task of nightly, {site.rows.one('SELECT task_id FROM tasks')}, is unfinished."
    )
    assert site.told("run-schedule/nightly") == told


def test_a_dead_letter_is_discarded(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.dead_letters (digest, name, reason, size, message)
        VALUES (sha256('x'), 'shop.charge', 'no role', 1, 'x')""")
    letter = site.rows.one("SELECT id FROM celeriac.dead_letters")
    assert "Nothing was changed" in site.told(f"dead-letters/{letter}/replay")
    assert "discarded" in site.told(f"dead-letters/{letter}/discard")
    assert "There is none" in site.html("dead-letters")


def test_an_alert_is_silenced_and_told_again(site: Site) -> None:
    """An application's own: what the engine watches is shown while it is so."""
    site.rows("""INSERT INTO celeriac.alerts (name, subject, value, threshold, says)
        VALUES ('own_depth', 'crawl', 2, 1, '2 shops wait, more than 1')""")
    assert "crawl</a> 2 shops wait, more than 1" in site.html("overview")
    said = site.told("alerts/silence", name="own_depth", subject="crawl", span="2h", why="known")
    assert said == "Nobody is told of own_depth crawl for 2 h."
    assert "known" in site.html("alerts")
    assert "Nothing was changed" in site.told("alerts/silence", name="own_depth", subject="crawl", span="soon")
    assert site.told("alerts/unsilence", name="own_depth", subject="crawl") == "own_depth crawl is told of again."
    assert site.rows("SELECT * FROM celeriac.alert_silences") == []


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("tasks/retry", {"task": "9" * 5000}), ("tasks/retry", {"task": str(2**63)}),
        ("tasks/1/priority", {"priority": "9" * 5000}), ("tasks/1/priority", {"priority": "9" * 18}),
        ("enqueue/crawl", {"kwargs": "[" * 100_000}), ("enqueue/crawl", {"kwargs": '{"store_id": "\\u0000"}'}),
        ("enqueue/crawl", {"kwargs": '{"store_id": 1}', "account": "\0"}),
        ("enqueue/crawl", {"kwargs": '{"store_id": 1}', "priority": "9" * 18}),
        ("set-account/b", {"weight": "nan", "create": "yes"}), ("set-account/b", {"cap": "9" * 18, "create": "yes"}),
        ("limits-of-role/crawl", {"timeout": "1e300"}), ("limits-of-role/crawl", {"timeout": "nan"}),
        ("limits-of-role/crawl", {"rate_limit": "9" * 5000}), ("pause-role/crawl", {"why": "a\0b"}),
        ("alerts/silence", {"name": "queue_depth", "subject": "crawl", "span": "9" * 400 + "d"}),
        ("alerts/silence", {"name": "queue_depth", "subject": "crawl", "span": "9" * 15 + "d"}),
    ],
)  # fmt: skip
def test_nonsense_in_a_form_is_refused(still: Site, path: str, fields: dict[str, str]) -> None:
    answer = still.post(path, "admin", **fields)
    assert answer.status_code < 500, answer.text
    assert still.rows("SELECT * FROM celeriac.audit") == []


def test_the_trail_is_narrowed_by_anything_and_is_a_file(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = task(site, "pending", "crawl")
    site.told(f"tasks/{made}/boost")
    site.rows(
        "INSERT INTO audit (by, action, kind, target) SELECT 'psql', 'mend', 'role', 'crawl' FROM generate_series(1, 9)"
    )
    site.rows("""INSERT INTO audit (by, action, kind, target, after)
        VALUES ('psql', 'end', 'bulk', '1', '{"asked": 9, "done": 7, "skipped": 2}')""")
    trail = site.get("audit.json").json()["trail"]["items"]
    assert [one["via"] for one in trail] == ["SQL"] * 10 + ["dashboard"]
    assert "9 asked, 7 done, 2 skipped" in site.html("audit?kind=bulk")
    for alone in ("by=operate", "via=dashboard", "kind=task"):
        assert site.get(f"audit.json?{alone}").json()["trail"] == {"items": [trail[-1]], "next": None}
    assert len(site.get("audit.json?action=mend&newer=1h").json()["trail"]["items"]) == 9
    file = site.get("audit/export.csv?action=mend").text.splitlines()
    assert (file[0].replace('"', ""), len(file)) == ("id,at,by,via,action,kind,target,before,after,why", 10)
    assert "give 90, 30s" in site.get("audit?newer=soon").text
    monkeypatch.setattr(import_module("celeriac.insights.history.trail"), "LOOK", 5)
    monkeypatch.setattr("celeriac.dashboard.trail.LOOK", 5)
    text = site.html("audit?by=operate")
    assert "None of the 5 entries looked at" in text
    assert re.search(rf'\?by=operate&amp;before={trail[4]["id"]}&amp;seen=[^"]*">Older', text)
