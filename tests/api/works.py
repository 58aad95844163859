"""Tasks in whatever state a test needs, made in SQL."""

from __future__ import annotations

import itertools
from typing import Any

from tests.api.server import Api

_number = itertools.count(1_000_000)

#: What a row of that status has besides.
_LIVES = {
    "pending": "",
    "claimed": ", token = gen_random_uuid(), claimed_at = now()",
    "running": """, token = gen_random_uuid(), claimed_at = now(), started_at = now(), last_heartbeat_at = now(),
        worker_id = 'w', worker_pid = 1""",
    "completed": ", completed_at = now()",
    "failed": ", completed_at = now(), error_message = 'broken', retry_count = 3",
    "cancelled": ", completed_at = now()",
}


def task(api: Api, status: str = "pending", role: str = "instasite_build", **more: Any) -> int:
    """A row's id. `more`: columns."""
    n = next(_number)
    given = {"task_id": f"work-{n}", "role": role} | more
    columns, values = ", ".join(given), ", ".join(f":{name}" for name in given)
    row = api.rows.one(f"INSERT INTO worker_tasks ({columns}) VALUES ({values}) RETURNING id", **given)
    api.rows(f"UPDATE worker_tasks SET status = '{status}'{_LIVES[status]} WHERE id = :id", id=row)
    assert isinstance(row, int)
    return row


def row(api: Api, task: int, columns: str) -> tuple[Any, ...]:
    (found,) = api.rows(f"SELECT {columns} FROM worker_tasks WHERE id = :id", id=task)
    return found


def audited(api: Api, kind: str, target: object) -> list[tuple[Any, ...]]:
    """By whom, what, before, after and why, of each change."""
    wanted = (
        "SELECT by, action, before, after, why FROM celeriac.audit WHERE kind = :kind AND target = :target ORDER BY id"
    )
    return api.rows(wanted, kind=kind, target=str(target))
