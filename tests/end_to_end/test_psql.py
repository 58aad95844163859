"""A task enqueued by psql: what its transaction comes to, the task comes to."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from types import ModuleType

from sqlalchemy import make_url

from celeriac.local.account import Account
from celeriac.local.wheels import postgres_programs
from tests.processes import Rows, Running, until


def psql(url: str, script: str) -> list[str]:
    """The lines it prints for a script of statements."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    ended = subprocess.run(
        [postgres_programs(Account.for_servers()) / "psql", plain, "-XAtq", "-v", "ON_ERROR_STOP=1"],
        input=script, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PGTZ": "UTC"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


ENQUEUE = """SELECT task_id FROM celeriac.enqueue('add', '{"a": 40, "b": 2}');"""


def test_rolled_back_it_leaves_nothing_and_committed_it_runs(
    shop: ModuleType, worker: Callable[..., Running], rows: Rows, database_url: str
) -> None:
    worker()
    (gone,) = psql(database_url, f"BEGIN; {ENQUEUE} ROLLBACK;")
    kept, also = psql(database_url, f"BEGIN; {ENQUEUE} SELECT 'and the caller''s own work'; COMMIT;")
    assert also == "and the caller's own work"
    done = "SELECT result FROM worker_tasks WHERE task_id = :task_id AND status = 'completed'"
    assert until(lambda: rows(done, task_id=kept), "the committed task to run") == [(42,)]
    assert rows("SELECT task_id FROM worker_tasks") == [(kept,)]
    assert rows("SELECT FROM celeriac.task_events WHERE why LIKE :gone", gone=f"%{gone}%") == []
