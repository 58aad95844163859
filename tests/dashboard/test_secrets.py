"""A secret is where it was asked for, and nowhere else: on no page, in no answer, event, line or other row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis
from click.testing import CliRunner

from celeriac.cli import main
from celeriac.dashboard import app as dashboard
from tests.api.server import Api
from tests.dashboard import vault
from tests.dashboard.stack import Stack
from tests.end_to_end.listener import Listener, listening
from tests.processes import Rows, until
from tests.spelled import CANARY, SECRET, is_told

#: Columns of rows that were asked for with it, and of a success, whose callers wait for what it returned.
OF_ITS_ROW = {
    "tasks": {"args", "kwargs", "progress"}, "history": {"args", "kwargs", "result", "progress"},
    "scheduled_jobs": {"kwargs"}, "dead_letters": {"args", "kwargs", "message"},
}  # fmt: skip


@pytest.fixture
def stack(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(database_url, redis_url, tmp_path, vault)
    with stack.ends:
        yield stack


@pytest.fixture
def listener(redis_url: str) -> Iterator[Listener]:
    with listening(redis_url) as listener:
        yield listener


def enqueue(stack: Stack) -> dict[str, int]:
    """From code, by the API and by the dashboard: what succeeds, fails, is tried again and what waits."""
    card = {"pin": f"pin-{CANARY}", "name": "Ann"}
    for n, user in enumerate(("ann", "nobody", "late", "busy")):
        vault.login.delay(user, f"{n}-{CANARY}'\"", card=card)
        vault.plain_login.delay(user, f"{n}-plain-{CANARY}")
    vault.login.delay("spelled", SECRET)
    body = {"role": "login", "kwargs": {"user": "ann", "password": f"api-{CANARY}"}}
    stack.api.post("/api/tasks", body)
    stack.api.post("/api/tasks", body | {"delay": 86_400})
    stack.api.post("/api/admin/scheduled-jobs", {
        "name": "nightly", "cron_expression": "@daily", "role": "login", "kwargs": body["kwargs"],
    })  # fmt: skip
    stack.rows(
        """INSERT INTO celeriac.dead_letters (name, task_id, args, kwargs, reason, size, message, digest)
        VALUES ('login', 'dead', CAST(:args AS jsonb), CAST(:kwargs AS jsonb), 'it does not fit', 99,
            CAST(:message AS bytea), sha256('dead'))""",
        args=json.dumps(["ann", f"dead-{CANARY}"]), kwargs=json.dumps({"pin": CANARY}), message=CANARY.encode(),
    )  # fmt: skip
    until(lambda: not stack.rows("SELECT FROM tasks WHERE scheduled_for < now() + interval '1 minute'"), "all to end")
    return {str(user): int(str(i)) for i, user in stack.rows("SELECT id, kwargs ->> 'user' FROM history ORDER BY id")}


def addresses(stack: Stack) -> Iterator[str]:
    """Each page of the dashboard, and of its tasks each one's, as HTML and as JSON."""
    tasks = [str(i) for (i,) in stack.rows("SELECT id FROM worker_tasks")]
    prints = [one["fingerprint"] for one in stack.api.get("/api/failures")["groups"]]
    (letter,), (job,) = stack.rows("SELECT id FROM dead_letters")[0], stack.rows("SELECT id FROM scheduled_jobs")[0]
    filled = {
        "task": tasks, "fingerprint": prints, "letter": [str(letter)], "job": [str(job)], "role": ["login"],
        "name": ["nightly"], "kind": ["csv", "ndjson"],
    }  # fmt: skip
    for route in (route for router in dashboard.ROUTERS for route in router.routes):
        if "GET" in route.methods:
            yield from (f"/admin{path}{kind}" for path in each(route.path, filled) for kind in kinds(path))
    for path, methods in stack.api.get("/openapi.json")["paths"].items():
        if "get" in methods:
            yield from each(path, filled)


def each(path: str, filled: dict[str, list[str]]) -> Iterator[str]:
    named = re.search(r"\{(\w+)(?::path)?\}", path)
    if named is None:
        yield path
        return
    for value in filled.get(named[1], ["1"]):
        yield from each(path.replace(named[0], value, 1), filled)


def kinds(path: str) -> tuple[str, ...]:
    return ("",) if "export" in path else ("", ".json")


def shown(api: Api, session: str, path: str) -> str:
    headers = {"Cookie": f"celeriac={session}"} if path.startswith("/admin") else {}
    answer = api.ask("GET", path, headers=headers, follow_redirects=True)
    assert answer.status_code in (200, 404, 422), f"{path}: {answer.status_code} {answer.text[:500]}"
    return answer.text


def commands(stack: Stack, failed: int) -> Iterator[tuple[str, ...]]:
    waits, letter = (str(stack.rows.one(f"SELECT max(id) FROM {table}")) for table in ("tasks", "dead_letters"))
    for command in (
        ("tasks", "show", str(failed)), ("tasks", "show", waits), ("why", waits), ("tasks", "list"),
        ("tasks", "list", "--status", "failed"), ("failures", "list"), ("schedules", "list"),
        ("schedules", "toggle", "nightly"), ("audit",), ("dead-letters", "list"), ("dead-letters", "show", letter),
        ("doctor",), ("status",),
    ):  # fmt: skip
        yield command
        yield (*command, "--json")
    yield ("check", "--deep")
    yield ("tasks", "list", "--format", "csv")


def found_in(rows: Rows) -> dict[str, set[str]]:
    """Table → columns that have it."""
    found: dict[str, set[str]] = {}
    for table, column in rows(
        """SELECT relname, attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE relnamespace = 'celeriac'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
            AND attnum > 0 AND NOT attisdropped"""
    ):
        is_message = (table, column) == ("dead_letters", "message")
        told = f"convert_from({column}, 'UTF8')" if is_message else f"CAST({column} AS text)"
        if any(is_told(str(value)) for (value,) in rows(f"SELECT {told} FROM celeriac.{table}")):
            found.setdefault(str(table), set()).add(str(column))
    return found


def test_a_secret_is_nowhere_but_in_its_row(stack: Stack, redis_url: str, listener: Listener) -> None:
    server = stack.serve()
    worker = stack.worker("login", "celery", options=("-E",))
    tasks = enqueue(stack)
    until(lambda: len([e for e in listener.heard if e["type"] == "task-failed"]) == 4, "the failures to be told")
    session = stack.api.session()
    for path in addresses(stack):
        assert not is_told(shown(stack.api, session, path)), path
    for command in commands(stack, tasks["nobody"]):
        told = CliRunner().invoke(main, ["-A", "tests.dashboard.vault", *command])
        assert told.exit_code != 2, told.output
        assert not is_told(told.output), command
    assert not [event for event in listener.heard if is_told(json.dumps(event, default=str))]
    assert not [line for line in server.printed().splitlines() if is_told(line)]
    assert not [line for line in worker.printed().splitlines() if is_told(line)]
    assert "•••" in worker.printed(), "Celery logs what went wrong"
    held = redis.Redis.from_url(redis_url)
    assert not [key for key in held.scan_iter() if is_told(str(held.dump(key)))]
    found = found_in(stack.rows)
    assert found.keys() <= OF_ITS_ROW.keys(), found
    assert all(columns <= OF_ITS_ROW[table] for table, columns in found.items()), found
    assert stack.rows.one("SELECT count(*) FROM history WHERE error_message LIKE '%•••%'") == 4
    assert not stack.rows("SELECT FROM history WHERE status = 'failed' AND result::text LIKE '%kanarienv%'")


def test_no_list_is_narrowed_by_a_secret(stack: Stack) -> None:
    """Whoever finds a task by its password knows it."""
    stack.serve()
    vault.login.delay("ann", CANARY)
    for path in (f"/api/tasks?arg.password={CANARY}", f"/api/tasks?role=login&arg.password={CANARY}"):
        told = stack.api.refused(422, "GET", path)
        assert told["detail"] == "arg.password: login keeps it secret, so no list can be narrowed by it"
    assert stack.api.get("/api/tasks?role=plain_login&arg.user=ann") == {"tasks": [], "next": None}
    bulk = {"dry_run": False, "later": True, "filter": {"role": "login", "arguments": {"password": CANARY}}}
    assert "keeps it secret" in stack.api.refused(422, "POST", "/api/tasks/cancel", json=bulk)["detail"]
    assert not stack.rows("SELECT FROM bulk_actions")
    page = httpx.Client(base_url=f"{stack.url}/admin", cookies={"celeriac": stack.api.session()})
    assert "keeps it secret" in page.get(f"/tasks?arg.password={CANARY}").text
    headers = {"Sec-Fetch-Site": "same-origin"}
    page.post("/views/mine", data={"name": "ann's", "arg.password": CANARY}, headers=headers)
    assert not stack.rows("SELECT FROM saved_views")
    page.post("/views/mine", data={"name": "ann's", "arg.user": "ann"}, headers=headers)
    assert len(stack.rows("SELECT FROM saved_views")) == 1
    page.close()


def test_another_like_it_and_an_edited_schedule_keep_what_nobody_sees(stack: Stack) -> None:
    stack.serve()
    made = stack.api.post("/api/tasks", {"role": "login", "kwargs": {"user": "ann", "password": CANARY}})
    page = httpx.Client(base_url=f"{stack.url}/admin", cookies={"celeriac": stack.api.session()})
    headers = {"Sec-Fetch-Site": "same-origin"}
    assert page.post(f"/tasks/{made['id']}/duplicate", headers=headers).status_code == 303
    assert stack.rows("SELECT kwargs ->> 'password' FROM tasks") == [(CANARY,), (CANARY,)]
    job = stack.api.post("/api/admin/scheduled-jobs", {
        "name": "nightly", "cron_expression": "@daily", "role": "login", "kwargs": {"user": "ann", "password": CANARY},
    })  # fmt: skip
    assert job["kwargs"] == {"user": "ann", "password": "•••"}
    stack.api.put(f"/api/admin/scheduled-jobs/{job['id']}", {"kwargs": job["kwargs"] | {"user": "bob"}})
    assert stack.rows.one("SELECT kwargs FROM scheduled_jobs") == {"user": "bob", "password": CANARY}
    form = page.get("/edit-schedule/nightly").text
    assert not is_told(form)
    fields = dict(re.findall(r'<input[^>]* name="(\w+)"[^>]*value="([^"]*)"', form))
    said = fields | {
        "kwargs": '{"user": "eve", "password": "•••"}',
        "overlap": "skip",
        "misfire": "once",
        "options": "{}",
    }
    answer = page.post("/edit-schedule/nightly", data=said, headers=headers)
    assert answer.status_code == 303, answer.text
    assert stack.rows.one("SELECT kwargs FROM scheduled_jobs") == {"user": "eve", "password": CANARY}
    page.close()
