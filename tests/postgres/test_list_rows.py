"""A list looks its rows up one by one; it tells of each what the view of all tasks tells."""

from __future__ import annotations

from typing import Any

import pytest

from celeriac.insights import Filter, list_tasks
from celeriac.insights.tasks.pages import COLUMNS
from celeriac.store.connections import Database
from tests.processes import Rows

MADE = """
INSERT INTO worker_tasks (task_id, role, account, lock_key, status, waits_for, token, worker_id, claimed_at, started_at,
    last_heartbeat_at, completed_at, scheduled_for, progress)
VALUES
    ('ready', 'work', 'a', NULL, 'pending', NULL, NULL, NULL, NULL, NULL, NULL, NULL, now(), NULL),
    ('again', 'work', 'a', NULL, 'pending', 'time', NULL, NULL, NULL, now(), NULL, NULL, now() + '1 h', '{"at": 1}'),
    ('head', 'work', 'a', 'key', 'pending', NULL, NULL, NULL, NULL, NULL, NULL, NULL, now(), NULL),
    ('behind', 'work', 'a', 'key', 'pending', 'lock', NULL, NULL, NULL, NULL, NULL, NULL, now(), NULL),
    ('parked', 'work', 'b', NULL, 'pending', 'account', NULL, NULL, NULL, NULL, NULL, NULL, now(), NULL),
    ('claimed', 'work', 'a', NULL, 'claimed', NULL, :claimed, NULL, now(), NULL, NULL, NULL, now(), NULL),
    ('with it', 'work', 'b', NULL, 'claimed', NULL, :claimed, NULL, now(), NULL, NULL, NULL, now(), NULL),
    ('running', 'work', 'a', NULL, 'running', NULL, :running, 'w', now(), now(), now(), NULL, now(), '{"at": 2}'),
    ('completed', 'work', 'a', NULL, 'completed', NULL, NULL, 'w', now(), now(), NULL, now(), now(), NULL),
    ('failed', 'other', 'a', NULL, 'failed', NULL, NULL, 'w', now(), now(), NULL, now() - '5 d'::interval, now(), NULL),
    ('cancelled', 'work', 'a', NULL, 'cancelled', NULL, NULL, NULL, NULL, NULL, NULL, now() + '1 d', now(), NULL)
"""
TOKENS = {name: f"00000000-0000-4000-8000-00000000000{n}" for n, name in enumerate(("claimed", "running"))}


@pytest.mark.parametrize(
    "wanted",
    [{}, {"role": "work"}, *({"statuses": [status]} for status in (
        "pending", "claimed", "running", "completed", "failed", "cancelled"))],
    ids=str,
)  # fmt: skip
def test_a_list_tells_what_the_view_tells(database: Database, rows: Rows, wanted: dict[str, Any]) -> None:
    rows(MADE, **TOKENS)
    given = {"statuses": wanted.get("statuses"), "role": wanted.get("role")}
    found = rows(
        f"""SELECT {COLUMNS} FROM worker_tasks
            WHERE (CAST(:statuses AS text[]) IS NULL OR status = ANY (CAST(:statuses AS text[])))
                AND (CAST(:role AS text) IS NULL OR role = :role) ORDER BY id DESC""",
        **given,
    )
    with database.reading() as connection:
        listed = list_tasks(connection, Filter(**wanted)).items
    assert found
    assert [tuple(row.values()) for row in listed] == found
