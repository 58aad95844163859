"""Prune under an old transaction: each batch begins where the last one ended, and meets none of its dead entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from celeriac import Celeriac
from celeriac.repair import prune
from tests.processes import Rows

BATCH, N = 50, 1_000

#: Of the transaction that asks: entries it read of indexes, dead ones as well. The next one begins at zero.
READ = """
SELECT pg_stat_force_next_flush(), coalesce(sum(pg_stat_get_xact_tuples_returned(indexrelid)), 0) FROM pg_index
WHERE indrelid IN (SELECT oid FROM pg_class WHERE relname LIKE 'history%' OR relname IN (
    'task_events', 'passes', 'adopted', 'dead_letters', 'minutes', 'outcomes', 'group_results', 'bulk_tasks'))
"""

HISTORY = """
INSERT INTO worker_tasks (task_id, role, status, completed_at)
SELECT gen_random_uuid(), 'work', 'completed', now() - interval '3 hours' + n * interval '1 second'
FROM generate_series(1, :n) n"""

# Of two barriers, nobody waits at either; every tenth result goes nowhere.
MEMBERS = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, completed_at,
    created_at, retry_count, tries, max_rounds, losses, barrier, place)
SELECT nextval('celeriac.tasks_id_seq'), gen_random_uuid(), 'work', '', 'completed', 0, now(), '[]', '{}', now(), now(),
    0, 0, 1, 0, CAST(md5(CAST(n % 2 AS text)) AS uuid), nullif(n, n / 100 * 100) FROM generate_series(1, :n) n"""

LEFT = """
WITH stopped AS (
    INSERT INTO bulk_actions (move, filter, upto, until, state, by, ended_at)
    SELECT 'retry', '{}', 0, now(), 'stopped', 'x', now() FROM generate_series(1, 2) RETURNING id
)
INSERT INTO bulk_tasks (bulk, id) SELECT stopped.id, n FROM stopped, generate_series(1, :n / 2) n"""

FILLED = {
    "tasks": ('{"keep": 3600}', HISTORY),
    "members": ('{"keep": null}', MEMBERS),
    "bulks": ('{"keep": 3600}', LEFT),
    "events": (
        '{"keep": 3600}',
        """INSERT INTO task_events (task, role, kind, at)
            SELECT n, 'work', 'x', now() - interval '60 days' + n * interval '1 second'
            FROM generate_series(1, :n) n""",
    ),
    "minutes": (
        '{"keep": 3600}',
        """INSERT INTO outcomes SELECT 'work', now() - interval '60 days' + n * interval '1 minute', 1, 0, 0, 0, 0
            FROM generate_series(1, :n) n""",
    ),
}


@pytest.fixture
def read() -> Iterator[list[int]]:
    """How many entries of what is pruned each transaction read."""
    entries: list[int] = []

    def count(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("COMMIT"):
            cursor.execute(READ)
            entries.append(int(cursor.fetchone()[1]))

    event.listen(Engine, "before_cursor_execute", count)
    yield entries
    event.remove(Engine, "before_cursor_execute", count)


@pytest.mark.usefixtures("old_transaction")
@pytest.mark.parametrize("what", FILLED)
def test_under_an_old_transaction_no_batch_walks_over_those_before(
    app: Celeriac, rows: Rows, read: list[int], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    definition, fill = FILLED[what]
    monkeypatch.setattr(prune, "BATCH", BATCH)
    rows("INSERT INTO roles (role, definition) VALUES ('work', CAST(:d AS jsonb))", d=definition)
    rows(fill, n=N)
    read.clear()
    assert prune.prune_finished(app) == N
    assert len(read) > N / BATCH
    assert max(read) < 5 * BATCH, str(read)
