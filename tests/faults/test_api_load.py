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
INSERT INTO worker_tasks (
    task_id, role, account, status, waits_for, scheduled_for, token, claimed_at, started_at, last_heartbeat_at,
    worker_id, completed_at, created_at
)
SELECT 'fill-' || n, 'role_' || n % 7, 'account_' || n % 1000, status,
    CASE WHEN status = 'pending' AND n % 5 = 0 THEN 'time' END, now() + n % 1000 * interval '1 second',
    CASE WHEN status <> 'pending' THEN gen_random_uuid() END, CASE WHEN status <> 'pending' THEN now() END,
    CASE WHEN status <> 'pending' THEN now() END, CASE WHEN status <> 'pending' THEN now() END,
    CASE WHEN status <> 'pending' THEN 'worker' END,
    CASE WHEN status IN ('completed', 'failed', 'cancelled') THEN now() - n * interval '1 millisecond' END,
    now() - n * interval '1 millisecond'
FROM (
    SELECT n, CASE WHEN n % 10 = 0 AND n <= 2000 THEN 'running' WHEN n % 100 = 1 THEN 'cancelled'
        WHEN n % 20 = 2 THEN 'failed' WHEN n % 2 = 0 THEN 'completed' ELSE 'pending' END AS status
    FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n
) AS made
"""

LISTS = (
    "/api/tasks", "/api/tasks?status=pending&role=role_3", "/api/tasks?status=completed", "/api/tasks?status=failed",
    "/api/tasks?account=account_77", "/api/tasks?status=running", "/api/tasks?limit=100&offset=700",
    "/api/tasks/role/role_2/recent", "/api/admin/jobs?status=queued",
    "/api/admin/jobs?status=failed&limit=100&offset=20",
)  # fmt: skip

FEW = 1_000


@pytest.fixture
def api(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Api]:
    with serving(database_url, redis_url, tmp_path / "log") as api:
        yield api


def fill(api: Api, first: int, last: int) -> None:
    api.rows(FILL, first=first, last=last)
    api.rows("VACUUM ANALYZE worker_tasks")


def cost(api: Api, path: str) -> float:
    """Seconds of one quiet call, the median of nine."""

    def one() -> float:
        began = time.monotonic()
        api.get(path)
        return time.monotonic() - began

    return statistics.median(one() for _ in range(9))


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
    rows, clients, seconds = sized(1_000_000, 20_000), sized(200, 50), sized(30, 3)
    fill(api, 1, FEW)
    before = {path: cost(api, path) for path in LISTS}
    fill(api, FEW + 1, rows)
    after = {path: cost(api, path) for path in LISTS}
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
    assert api.rows.one("SELECT count(*) FROM worker_tasks WHERE role = 'instasite_build'") == made
