"""Per-minute counts of ended tasks, for roles that keep no successes: their history holds failures alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, text

# Ordered by role, so that two transactions that count never deadlock.
COUNT = text("""
INSERT INTO celeriac.outcomes AS o (role, minute, completed, failed, completed_again, failed_again, run_seconds)
SELECT role, date_trunc('minute', statement_timestamp()), completed, failed, completed_again, failed_again, run_seconds
FROM jsonb_to_recordset(CAST(:counts AS jsonb)) AS c (
    role text, completed bigint, failed bigint, completed_again bigint, failed_again bigint,
    run_seconds double precision)
ORDER BY role
ON CONFLICT (role, minute) DO UPDATE
SET completed = o.completed + excluded.completed, failed = o.failed + excluded.failed,
    completed_again = o.completed_again + excluded.completed_again,
    failed_again = o.failed_again + excluded.failed_again,
    run_seconds = o.run_seconds + excluded.run_seconds
""")


@dataclass(slots=True)
class Counts:
    """How many tasks of one role ended, as their worker reported. `again`: those with an earlier attempt.
    `run_seconds`: of all together.
    """

    completed: int = 0
    failed: int = 0
    completed_again: int = 0
    failed_again: int = 0
    run_seconds: float = 0.0


def count(connection: Connection, counts: Mapping[str, Counts]) -> None:
    """Add these counts, by role, to the current minute's."""
    rows = [{"role": role} | asdict(of_role) for role, of_role in counts.items()]
    connection.execute(COUNT, {"counts": json.dumps(rows)})
