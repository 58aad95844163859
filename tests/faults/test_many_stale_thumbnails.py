"""100,000 stuck builds: all are reset, in transactions of a bounded size, and nobody who works meanwhile waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.app import app
from tasks.stale_thumbnails import fix_stale_thumbnails
from tests import processes
from tests.processes import Rows, until
from tests.systems.stack import on_servers

Sized = Callable[[int, int], int]

FILL = """
INSERT INTO {} (account_id, status, details, thumbnail_build_in_progress, thumbnail_process_started_at {})
SELECT (SELECT min(id) FROM accounts), 'PUBLISHED', CAST('{{"thumbnails"\\: {{"desktop"\\: null}}}}' AS jsonb), true,
    now() - interval '3 hours' {}
FROM generate_series(1, :n)
"""

STUCK = "SELECT count(*) FROM {} WHERE thumbnail_build_in_progress OR thumbnail_process_started_at IS NOT NULL"

#: A row's xmin is the transaction that wrote it last.
LARGEST = "SELECT max(n), count(*) FROM (SELECT count(*) AS n FROM {} GROUP BY xmin\\:\\:text) AS transactions"

TABLES = ("agency_websites", "instasites")

#: Rows that a transaction may reset, as docs/documents.md has it.
MOST = 1_000

#: Seconds a statement on a site may wait for the fixer.
PATIENCE = 5.0


@pytest.fixture
def rows(database_url: str) -> Iterator[Rows]:
    rows = Rows(database_url)
    yield rows
    rows.close()


def test_100_000_stuck_builds_are_reset_in_bounded_batches(
    sized: Sized, rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    n = sized(50_000, 2_500)  # of each kind
    rows("INSERT INTO accounts (name, email) VALUES ('Anna', 'anna@example.com')")
    rows(FILL.format("agency_websites", "", ""), n=n)
    rows(FILL.format("instasites", ", published_at", ", now()"), n=n)
    environ = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    options = ("-c", "1", "-Q", "fix_stale_thumbnails")
    with (
        on_servers(app, environ),
        processes.worker(
            "tasks", database_url, redis_url, tmp_path / "log", *options, environ={"NODE_ENV": "production"}
        ),
    ):
        task = fix_stale_thumbnails.delay()
        waits = [0.0]

        def done() -> bool:
            began = time.monotonic()
            rows("UPDATE instasites SET updated_at = now() WHERE id = (SELECT max(id) FROM instasites)")
            waits.append(time.monotonic() - began)
            return bool(rows.one("SELECT status FROM worker_tasks WHERE task_id = :id", id=task.id) == "completed")

        until(done, "the reset")
        result = rows.one("SELECT result FROM worker_tasks WHERE task_id = :id", id=task.id)
    assert isinstance(result, dict)
    assert result["reset"] == dict.fromkeys(TABLES, n)
    assert [rows.one(STUCK.format(table)) for table in TABLES] == [0, 0]
    for table in TABLES:
        ((largest, transactions),) = rows(LARGEST.format(table))
        assert largest <= MOST
        assert transactions >= n / MOST
    assert max(waits) < PATIENCE
    print(f"{2 * n} reset; the longest wait of another writer was {max(waits):.3f} s")
