"""Lists, statistics and enqueues over HTTP beside a million rows, for 200 clients at once."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.api.server import Api, serving
from tests.faults.clients import Ask, ask_for

#: Rows in every state and many roles and accounts, as a system has them that has run for a while; windows bound
#: what is active.
FILL = """
WITH made AS MATERIALIZED (
    SELECT nextval('celeriac.tasks_id_seq') AS id, 'fill-' || n AS task_id, 'role_' || n % 7 AS role,
        'account_' || n % 1000 AS account, now() + n % 1000 * interval '1 second' AS due,
        now() - n * interval '1 millisecond' AS at, n % 5 = 0 AS is_later,
        CASE WHEN n % 10 = 0 AND n <= 2000 THEN 'running' WHEN n % 100 = 1 THEN 'cancelled'
            WHEN n % 20 = 2 THEN 'failed' WHEN n % 2 = 0 THEN 'completed' ELSE 'pending' END AS status
    FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n
), unfinished AS (
    INSERT INTO celeriac.tasks (id, task_id, role, account, scheduled_for, created_at)
    SELECT id, task_id, role, account, due, at FROM made WHERE status IN ('pending', 'running')
), to_ready AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
    SELECT 0, role, account, 0, due, id FROM made WHERE status = 'pending' AND NOT is_later
), to_later AS (
    INSERT INTO celeriac.later (role, account, due_at, id)
    SELECT role, account, due, id FROM made WHERE status = 'pending' AND is_later
), held AS (
    INSERT INTO celeriac.tickets (token, role, ids, accounts, worker_id, started_at, heartbeat_at)
    SELECT gen_random_uuid(), role, ARRAY[id], ARRAY[account], 'worker', now(), now() FROM made WHERE status = 'running'
)
INSERT INTO celeriac.history (
    id, task_id, role, account, status, priority, scheduled_for, args, kwargs, worker_id, claimed_at, started_at,
    completed_at, retry_count, tries, max_rounds, losses, created_at)
SELECT id, task_id, role, account, status, 0, due, '[]', '{}', 'worker', now(), now(), at, 0, 0, 1, 0, at
FROM made WHERE status IN ('completed', 'failed', 'cancelled')
"""

ROOMS = ", ".join(f"celeriac.{room}" for room in ("tasks", "ready", "later", "tickets", "history"))

LISTS = (
    "/api/tasks", "/api/tasks?status=pending&role=role_3", "/api/tasks?status=completed", "/api/tasks?status=failed",
    "/api/tasks?account=account_77", "/api/tasks?status=running", "/api/tasks?limit=100&offset=700",
    "/api/tasks/role/role_2/recent", "/api/admin/jobs?role=role_2&status=queued",
    "/api/admin/jobs?role=role_2&status=failed&limit=100&offset=20",
)  # fmt: skip

FEW = 1_000


@pytest.fixture
def api(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Api]:
    with serving(database_url, redis_url, tmp_path / "log") as api:
        yield api


def fill(api: Api, first: int, last: int) -> None:
    api.rows(FILL, first=first, last=last)
    api.rows(f"VACUUM ANALYZE {ROOMS}")


def cost(api: Api, path: str, calls: int) -> float:
    """Seconds of one quiet call, the median of so many."""

    def one() -> float:
        began = time.monotonic()
        api.get(path)
        return time.monotonic() - began

    return statistics.median(one() for _ in range(calls))


_site = itertools.count(1_000_000)


def asks(n: int) -> Iterator[Ask]:
    """A client's questions: lists, statistics and enqueues in turn."""
    for turn in itertools.count(n):
        yield Ask("list", "GET", LISTS[turn % len(LISTS)])
        yield Ask("stats", "GET", "/api/admin/jobs/stats")
        kwargs = {"instasite_id": next(_site), "account_id": n}
        yield Ask("enqueue", "POST", "/api/tasks", {"role": "instasite_build", "kwargs": kwargs})


@pytest.mark.timeout(900)
def test_a_million_rows_and_two_hundred_clients_slow_no_list_down(api: Api, sized: Callable[[int, int], int]) -> None:
    rows, clients, seconds, calls = sized(1_000_000, 20_000), sized(200, 50), sized(30, 3), sized(9, 5)
    fill(api, 1, FEW)
    before = {path: cost(api, path, calls) for path in LISTS}
    fill(api, FEW + 1, rows)
    after = {path: cost(api, path, calls) for path in LISTS}
    for path in LISTS:
        print(f"{path}: {before[path] * 1000:.1f} ms at {FEW:,} rows, {after[path] * 1000:.1f} ms at {rows:,}")
    assert {path: round(after[path] / before[path], 1) for path in LISTS if after[path] > 10 * before[path]} == {}

    answers = ask_for(api.url, api.tokens["admin"], seconds, clients, asks)
    print(f"{clients} clients, {seconds} s, {rows:,} rows: {answers.total() / seconds:.0f} answers a second")
    for kind in answers.seconds:
        shares = {f"p{share * 100:g}": f"{answers.percentile(kind, share) * 1000:.0f} ms" for share in (0.5, 0.99)}
        print(f"{kind}: {len(answers.seconds[kind])} answers, {shares}")
    assert answers.errors == []
    made = len(answers.seconds["enqueue"])
    assert api.rows.one("SELECT count(*) FROM celeriac.tasks WHERE role = 'instasite_build'") == made
