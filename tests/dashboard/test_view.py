"""The scope `view`: all there is, but neither what tasks were called with, what came of it, nor what errors say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from celeriac.insights.tasks.veil import CALLS as CALLS_FIELDS
from celeriac.insights.tasks.veil import ERROR_TEXTS
from celeriac.operate.tokens import CALLS, IMPLIED, READ, VIEW
from celeriac.store.messages import quoted
from tests.api.works import task
from tests.dashboard.pages import ONE, PAGES, filled
from tests.dashboard.site import Site

CANARY = "canary-4711"


@pytest.fixture
def site(still: Site) -> Site:
    """One for all: nothing is changed by looking."""
    return still


@pytest.fixture(scope="module")
def made(of_module: Site) -> dict[str, int]:
    """Calls, results, progress and errors that have it."""
    site = of_module
    made = {
        status: task(site, status, "crawl", account="acme") for status in ("pending", "running", "completed", "failed")
    }
    args, kwargs, said = json.dumps([CANARY]), json.dumps({"store_id": CANARY}), json.dumps({"of": [CANARY]})
    for table in ("tasks", "history"):
        site.rows(f"UPDATE celeriac.{table} SET args = CAST(:args AS jsonb), kwargs = CAST(:kwargs AS jsonb), "
                  "progress = CAST(:said AS jsonb)", args=args, kwargs=kwargs, said=said)  # fmt: skip
    site.rows("UPDATE celeriac.history SET result = CAST(:said AS jsonb) WHERE status = 'completed'", said=said)
    site.rows(
        """UPDATE celeriac.history
        SET error_message = :says, result = jsonb_build_object('traceback', CAST(:says AS text))
        WHERE status = 'failed'""", says=f"ValueError: no {CANARY}",
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
        VALUES (:task, 'crawl', 'retry', 'running', 'pending', 'w', :why),
            (:task, 'crawl', 'prioritise', 'pending', 'pending', 'ann', 'of importance')""",
        task=made["failed"], why=f"ValueError: {CANARY}",
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kind, kwargs, declared, quarantined)
        VALUES ('nightly', 'crawl', '@daily', 'task', CAST(:kwargs AS jsonb), CAST(:declared AS jsonb), :why)""",
        kwargs=kwargs, declared=json.dumps({"kwargs": json.loads(kwargs)}), why=quoted(f"KeyError: {CANARY}"),
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.alerts (name, subject, value, threshold, says)
        VALUES ('fails_now', 'crawl', 2, 1, :says), ('account_fails', 'acme', 2, 1, :before)""",
        says=f"2 attempts failed: {quoted(f'ValueError: {CANARY}')}; 2 tasks", before=f"all failed: {CANARY}",
    )  # fmt: skip
    site.rows(
        """WITH before AS (
            INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kind, quarantined)
            VALUES ('before', 'crawl', '@daily', 'task', :why) RETURNING id)
        INSERT INTO celeriac.ticks (schedule, due_at, left_out, why)
        SELECT id, now(), 1, 'it cannot run: ' || :why FROM before""", why=f"crawl: store_id={CANARY}",
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.dead_letters (digest, name, reason, size, message, args, kwargs)
        VALUES (sha256('x'), 'crawl', 'it does not fit: canary-4711', 99, CAST(:message AS bytea), CAST(:args AS jsonb),
            CAST(:kwargs AS jsonb))""",
        message=CANARY.encode(), args=args, kwargs=kwargs,
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.audit (by, action, kind, target, before, via)
        VALUES ('ann', 'discard', 'dead_letter', '7', CAST(:before AS jsonb), 'API')""",
        before=json.dumps({"name": "crawl", "task_id": "x", "sender": "shop", "reason": f"no {CANARY}"}),
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.audit (by, action, kind, target, after, via)
        VALUES ('ann', 'cancel', 'tasks', :before, CAST(:after AS jsonb), 'API')""",
        before=f"statuses=['failed'], error={CANARY}", after=json.dumps({"filter": {"error": CANARY}, "tasks": 1}),
    )  # fmt: skip
    site.rows(
        "INSERT INTO celeriac.task_logs (task, attempt, level, line) VALUES (:task, 1, 'INFO', :line)",
        task=made["failed"], line=f"tried {CANARY}",
    )  # fmt: skip
    site.tokens[VIEW] = site.token(VIEW, VIEW)
    return made


def pages(site: Site, made: dict[str, int]) -> Iterator[str]:
    letter = site.rows.one("SELECT max(id) FROM celeriac.dead_letters")
    ones = [f"tasks/{number}" for number in made.values()]
    prints = [group["fingerprint"] for group in site.get("failures.json", "read").json()["failures"]["groups"]]
    ones += [f"failures/{one}" for one in prints] + [
        "schedules/nightly",
        "schedules/before",
        f"dead-letters/{letter}",
        "roles/crawl",
    ]
    for page in (*PAGES, *ones, "accounts/acme"):
        yield from (page, f"{page}.json")
    yield from ("tasks/export.csv", "tasks/export.ndjson", "audit/export.csv", "audit/export.ndjson")


def api(site: Site, scope: str, path: str) -> httpx.Response:
    return site.http.get(f"http://{site.host}{path}", headers={"Authorization": f"Bearer {site.tokens[scope]}"})


def answers(site: Site, made: dict[str, int]) -> Iterator[str]:
    """Each address of the API that is read; of a task, of each of them."""
    (letter,), (job,) = (site.rows(f"SELECT max(id) FROM celeriac.{t}")[0] for t in ("dead_letters", "scheduled_jobs"))
    for path, methods in api(site, "read", "/openapi.json").json()["paths"].items():
        if "get" in methods:
            filled = path.replace("/scheduled-jobs/{job}", f"/scheduled-jobs/{job}").replace("{letter}", str(letter))
            filled = filled.replace("{role}", "crawl").replace("{account}", "acme").replace("{job}", "{task}")
            yield from (filled.replace("{task}", str(n)) for n in (made.values() if "{task}" in filled else (0,)))


def test_a_token_that_views_sees_all_pages_and_no_call(site: Site, made: dict[str, int]) -> None:
    told = {page: site.get(page, "read").text for page in pages(site, made)}
    seen = {page: site.get(page, VIEW) for page in told}
    assert {page for page, answer in seen.items() if answer.status_code != 200} == set()
    assert [page for page, answer in seen.items() if CANARY in answer.text] == []
    assert len([page for page, text in told.items() if CANARY in text]) > 12, "who may read sees them there"
    failed = seen[f"tasks/{made['failed']}"].text
    assert "Failed: ValueError: •••." in failed
    assert "of importance" in failed, "an operator's reason is no error"
    assert json.loads(seen[f"tasks/{made['pending']}.json"].text)["task"]["kwargs"] == {"store_id": "•••"}


def test_a_token_that_views_gets_all_answers_and_no_call(site: Site, made: dict[str, int]) -> None:
    told = 0
    for path in answers(site, made):
        whole, seen = api(site, "read", path), api(site, VIEW, path)
        assert seen.status_code == whole.status_code, path
        assert CANARY not in seen.text, path
        told += CANARY in whole.text
        if path != "/metrics" and seen.is_success and path != "/openapi.json":
            assert whole.json().keys() == seen.json().keys(), path
    assert told > 10
    assert api(site, VIEW, "/openapi.json").json() == api(site, "read", "/openapi.json").json()


def hidden(whole: Any, seen: Any, name: str = "") -> Iterator[str]:
    """Names of the fields that have something hidden."""
    if isinstance(whole, dict) and isinstance(seen, dict):
        for key in whole.keys() & seen.keys():
            yield from hidden(whole[key], seen[key], key)
    elif isinstance(whole, list) and isinstance(seen, list):
        for one, other in zip(whole, seen, strict=False):
            yield from hidden(one, other, name)
    elif "•••" in str(seen) and "•••" not in str(whole) and "«" not in str(seen):
        yield name


def test_a_token_that_views_sees_whatever_is_no_call_and_no_error(full: Site) -> None:
    """Its texts are those that are listed: what is new is listed, or a call's, or an error's."""
    full.tokens[VIEW] = full.tokens.get(VIEW) or full.token(VIEW, VIEW)
    seen, may = set(), CALLS_FIELDS | ERROR_TEXTS | {"why", "reason", "lede"}  # the lede is made of the error's kind
    for path in (*PAGES, *(filled(one, full.ids) for one in ONE)):
        page, _, query = path.partition("?")
        whole, veiled = (full.get(f"{page}.json?{query}", scope).json() for scope in ("read", VIEW))
        wrong = {name for name in hidden(whole, veiled) if name not in may}
        assert wrong == set(), path
        seen |= {*hidden(whole, veiled)}
    assert {"args", "error_message"} <= seen


def test_nothing_is_found_by_what_one_does_not_see(site: Site, made: dict[str, int]) -> None:
    for query in (f"arg.store_id={CANARY}", f"error={CANARY}"):
        assert len(api(site, "read", f"/api/tasks?{query}").json()["tasks"]) > 0
        refusal = api(site, VIEW, f"/api/tasks?{query}")
        assert (refusal.status_code, refusal.json()["detail"]) == (
            403, f"{query.partition('=')[0]}: the token 'view' lacks the scope read",
        )  # fmt: skip
        page = site.get(f"tasks?{query}", VIEW)
        assert "this token sees neither arguments nor errors" in page.text
        assert f'id="task-{made["failed"]}"' not in page.text
        assert site.get(f"tasks/export.csv?{query}", VIEW).status_code == 422


def test_whoever_may_change_something_sees_what(site: Site) -> None:
    assert IMPLIED[VIEW] == {READ}
    assert [scope for scope, may in IMPLIED.items() if READ in may and CALLS not in may] == [VIEW]
