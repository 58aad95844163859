"""Every list is read page by page in the same way, whatever is inserted meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from celeriac.insights.failures.fingerprints import kind_of
from tests.api.described import document
from tests.api.server import Api
from tests.api.works import task

DOCUMENT = document()

#: What has lists in it and is none: a document of one thing.
ONE_THING = {
    "/healthz", "/readyz",
    "/openapi.json", "/api/tasks/counts", "/api/admin/jobs/stats", "/api/tasks/{task}", "/api/tasks/{task}/history",
    "/api/tasks/{task}/log", "/api/tasks/{task}/why", "/api/workflows/{workflow}",
    "/api/workers/{worker_id}/heartbeat", "/api/bulk/{number}", "/api/doctor", "/api/roles/{role}/waits",
    "/api/workers/{worker_id}/hour", "/api/shares/account",
}  # fmt: skip


def properties(path: str) -> dict[str, Any]:
    """Of what a GET answers with."""
    content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]
    name = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["schemas"].get(name, {}).get("properties", {})
    return found


LISTS = [
    path
    for path, operations in DOCUMENT["paths"].items()
    if "get" in operations and path not in ONE_THING
    and any("array" in (p.get("type"), *(o.get("type") for o in p.get("anyOf", ()))) for p in properties(path).values())
]  # fmt: skip


@pytest.mark.parametrize("path", LISTS)
def test_every_list_has_the_same_parameters_and_the_same_next(path: str) -> None:
    parameters = {one["name"]: one for one in DOCUMENT["paths"][path]["get"]["parameters"]}
    limit = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert {name: parameters["limit"]["schema"][name] for name in limit} == limit
    assert parameters["after"]["schema"]["type"] == "string"
    assert properties(path)["next"] == properties("/api/tasks")["next"]
    assert not {"before", "page", "cursor"} & parameters.keys()


class Listed(NamedTuple):
    """`make(n)`: SQL, of which some of the later ones go before some of the earlier ones."""

    items: str
    id: str
    make: str | Callable[[Api, int], object]
    where: str = ""


_SOON = "now() + (50 - :n % 50) * interval '1 hour'"

#: The id of a schedule.
TICKED = 424_242

KINDS = {
    "/api/tasks": Listed("tasks", "id", lambda api, _: task(api, account="paged"), "account=paged"),
    "/api/tasks/capacity": Listed(
        "roles", "role", "INSERT INTO roles (role, definition) VALUES ('capacity ' || :name, '{}')"
    ),
    "/api/tasks/metrics": Listed(
        "roles", "role", "INSERT INTO roles (role, definition) VALUES ('metrics ' || :name, '{}')"
    ),
    "/api/tasks/role/{role}/recent": Listed("tasks", "id", lambda api, _: task(api, "completed", role="paged")),
    "/api/admin/jobs": Listed(
        "jobs", "id", lambda api, _: task(api, "failed", role="paged jobs"), "role=paged jobs&status=failed"
    ),
    "/api/admin/scheduled-jobs": Listed(
        "scheduled_jobs", "name",
        "INSERT INTO scheduled_jobs (name, kind, target, cron_expression, owner, next_run_at) "
        "VALUES ('paged ' || :name, 'sweep', 'retention', '@daily', 'test', now() + interval '1 day')",
    ),
    "/api/admin/scheduled-jobs/{job}/ticks": Listed(
        "ticks", "task_id",
        f"""WITH one AS (
            INSERT INTO scheduled_jobs (id, name, target, cron_expression, enabled, owner)
            VALUES ({TICKED}, 'paged ticks', 'work', '@daily', false, 'test') ON CONFLICT DO NOTHING
        ), late AS (SELECT CAST({TICKED} AS bigint) AS schedule, now() - :n * 7 % 50 * interval '1 hour' AS at)
        INSERT INTO ticks (schedule, due_at, task_id) SELECT schedule, at, :name FROM late""",
    ),
    "/api/roles": Listed("roles", "role", "INSERT INTO roles (role, definition) VALUES ('depth ' || :name, '{}')"),
    "/api/roles/{role}/passes": Listed(
        "passes", "id", "INSERT INTO passes (role, by, free, why_nothing) VALUES ('paged', :name, 0, 'no room')"
    ),
    "/api/reviews": Listed("reviews", "role", "INSERT INTO queue_states (role, reviewed_by) VALUES (:name, 'beat')"),
    "/api/bulk": Listed(
        "bulks", "id",
        "INSERT INTO bulk_actions (move, filter, upto, until, by) VALUES ('cancel', '{}', 0, now(), :name)",
    ),
    "/api/beats": Listed("beats", "beat_id", "INSERT INTO beats (beat_id, hostname, pid) VALUES (:name, 'node', 1)"),
    "/api/accounts": Listed("accounts", "account", "INSERT INTO account_policies (account, weight) VALUES (:name, 2)"),
    "/api/audit": Listed(
        "audit", "id",
        "INSERT INTO audit (by, action, kind, target) VALUES ('test', :name, 'role', 'paged')",
        "kind=role&target=paged",
    ),
    "/api/workers": Listed(
        "workers", "worker_id",
        "INSERT INTO workers (worker_id, hostname, pid, concurrency) VALUES (:name, 'node', 1, 1)",
    ),
    "/api/dead-letters": Listed(
        "dead_letters", "id",
        "INSERT INTO dead_letters (digest, name, reason, size, message) "
        "VALUES (sha256(CAST(:name AS bytea)), 'paged', 'x', 1, 'x')", "name=paged",
    ),
    "/api/workflows": Listed("workflows", "id", lambda api, n: task(api, workflow=f"paged-{n * 7 % 50}")),
    "/api/workflows/{workflow}/tasks": Listed("tasks", "id", lambda api, _: task(api, workflow="paged")),
    "/api/failures": Listed(
        "groups", "fingerprint",
        lambda api, n: [task(api, "failed", role=f"fails-{'abcdefghijkl'[n]}") for _ in range(n % 4 + 1)],
    ),
    "/api/failures/{fingerprint}/tasks": Listed(
        "tasks", "id", lambda api, _: task(api, "failed", role="paged failed")
    ),
    "/api/shares": Listed(
        "accounts", "account", lambda api, n: task(api, role="paged shares", account=f"share-{n * 7 % 50}"),
        "role=paged shares",
    ),
    "/api/locks": Listed(
        "locks", "lock_key", lambda api, n: task(api, lock_key=f"paged-{n * 7 % 50}", waits_for="lock")
    ),
    "/api/locks/queue": Listed(
        "queue", "id", lambda api, n: task(api, lock_key="paged queue", waits_for="lock", priority=n % 3),
        "lock_key=paged queue",
    ),
    "/api/unique-keys": Listed(
        "unique_keys", "unique_key", lambda api, n: task(api, role="paged unique", unique_key=f"u-{n * 7 % 50}"),
        "role=paged unique",
    ),
    "/api/alerts": Listed(
        "alerts", "subject",
        "INSERT INTO alerts (name, subject, value, threshold, says) VALUES ('queue_depth', :name, 2, 1, 'deep')",
    ),
    "/api/alerts/pending": Listed(
        "alerts", "subject", "INSERT INTO alerts_pending (name, subject) VALUES ('long_wait', :name)"
    ),
    "/api/alerts/silences": Listed(
        "silences", "subject",
        f"INSERT INTO alert_silences (name, subject, until, by) VALUES ('long_wait', :name, {_SOON}, 'test')",
    ),
}  # fmt: skip


def test_every_list_is_walked_here() -> None:
    assert sorted(KINDS) == sorted(LISTS)


@pytest.mark.parametrize("path", KINDS)
def test_pages_lead_through_a_list_that_grows_meanwhile(api: Api, path: str) -> None:
    """What was there when the walk began is met once, and what comes meanwhile at most once."""
    kind = KINDS[path]
    numbers = itertools.count()
    for _ in range(5):
        made(api, kind, next(numbers))
    there = ids(kind, fetched(api, kind, path, 1000))
    assert len(there) >= 5
    met: list[object] = []
    for page in pages(api, kind, path):
        met += ids(kind, page)
        if (n := next(numbers)) < 12:
            made(api, kind, n)
    assert len(met) == len(set(met))
    assert set(there) <= set(met)
    in_one = fetched(api, kind, path, 1000)
    assert in_one["next"] is None
    assert [one for one in ids(kind, in_one) if one in there] == [one for one in met if one in there], (
        "in the same order"
    )


def pages(api: Api, kind: Listed, path: str) -> Iterator[dict[str, Any]]:
    after: str | None = None
    while True:
        page = fetched(api, kind, path, 2, after)
        assert len(page[kind.items]) <= 2
        yield page
        after = page["next"]
        if after is None:
            return


def fetched(api: Api, kind: Listed, path: str, limit: int, after: str | None = None) -> dict[str, Any]:
    wanted = dict(part.split("=") for part in kind.where.split("&") if part)
    place = {} if after is None else {"after": after}
    found: dict[str, Any] = api.get(
        path.format(
            role="paged",
            workflow="paged",
            job=TICKED,
            fingerprint=kind_of("paged failed", "broken", None).fingerprint,
        ),
        params=wanted | {"limit": limit} | place,
    )
    return found


def ids(kind: Listed, page: dict[str, Any]) -> list[object]:
    return [item[kind.id] for item in page[kind.items]]


def made(api: Api, kind: Listed, n: int) -> None:
    """Names go back and forth in their order."""
    if not isinstance(kind.make, str):
        kind.make(api, n)
        return
    given = {"name": f"{n * 7 % 50:02} paged", "n": n}
    api.rows(kind.make, **{name: value for name, value in given.items() if f":{name}" in kind.make})


@pytest.mark.parametrize("path", ["/api/tasks", "/api/admin/jobs", "/api/admin/scheduled-jobs"])
def test_a_place_and_a_number_to_skip_at_once_are_refused(api: Api, path: str) -> None:
    """Whether the number were counted from the place or from the beginning, some would read it the other way."""
    answer = api.ask("GET", path, params={"after": "7", "offset": 1})
    assert answer.status_code == 422, answer.text
    assert "give `offset` or `after`, not both" in answer.json()["detail"], answer.text
    assert [error["field"] for error in answer.json()["errors"]] == ["offset"]
    assert api.ask("GET", path, params={"after": "7", "offset": 0}).status_code == 200


@pytest.mark.parametrize("path", KINDS)
def test_a_place_that_is_none_is_refused(api: Api, path: str) -> None:
    """Except where it is a name, which any text is."""
    by_name = {"/api/admin/scheduled-jobs", "/api/reviews", "/api/accounts", "/api/workers"}
    wanted = dict(part.split("=") for part in KINDS[path].where.split("&") if part)
    unwritable = (r'["\ud800"]', r'[1, "\udc00"]', r'["\u0000"]', r'["a", "\u0000"]')
    for after in ("nowhere", "-1", '{"a": 1}', "9" * 5_000, *unwritable):
        address = path.format(role="paged", workflow="paged", job=TICKED, fingerprint="none")
        answer = api.ask("GET", address, params=wanted | {"after": after})
        assert answer.status_code == (200 if path in by_name else 422), f"{after} {answer.text}"
        if path not in by_name:
            assert answer.json()["errors"][0]["field"] == "after"
