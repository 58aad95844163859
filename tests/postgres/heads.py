"""The heads of the lock keys, and what the tasks wait for."""

from __future__ import annotations

from tests.processes import Rows

WAITS = "SELECT id, coalesce(waits_for, '') FROM worker_tasks WHERE status = 'pending' ORDER BY id"


def heads(rows: Rows) -> list[int]:
    """The ids of the heads of all locks, by both accounts: `locks`, and who of a lock's tasks waits for nothing."""
    unfinished = "status IN ('pending', 'claimed', 'running')"
    leading = f"SELECT id FROM worker_tasks WHERE lock_key IS NOT NULL AND waits_for IS NULL AND {unfinished}"
    found = [row_id for (row_id,) in rows(f"{leading} ORDER BY id")]
    assert found == [head for (head,) in rows("SELECT head FROM locks ORDER BY head")]
    return found
