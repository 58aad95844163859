"""Review: record the state of each role's queue, and find idle roles that have work.

After the Queue Master of rethinkdb-job-queue, whose review ends by writing the queue's state as "reviewed".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.repair.promote import promote_by_role
from celeriac.repair.prune import prune_by_role
from celeriac.repair.rescue import rescue_by_role

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Counts stop here, so that a review's cost does not depend on the backlog.
COUNTED = 1000

REVIEW = text("""
INSERT INTO celeriac.queue_states (role, reviewed_by, found)
SELECT r.role, :by, jsonb_build_object(
    'active', (SELECT coalesce(sum(cardinality(ids)), 0) FROM celeriac.tickets WHERE role = r.role),
    'ready', (SELECT count(*) FROM (
        SELECT FROM celeriac.ready WHERE role = r.role ORDER BY account LIMIT :counted) AS ready),
    'due', (SELECT count(*) FROM (
        SELECT FROM celeriac.later WHERE role = r.role AND due_at <= statement_timestamp()
        ORDER BY due_at LIMIT :counted) AS due)
) || coalesce(CAST(:done AS jsonb) -> r.role, '{}')
FROM celeriac.roles r ORDER BY r.role
ON CONFLICT (role) DO UPDATE
SET state = excluded.state, reviewed_at = excluded.reviewed_at, reviewed_by = excluded.reviewed_by,
    found = excluded.found
RETURNING role, (found ->> 'ready')::integer > 0 AND (found ->> 'active')::integer = 0 AS idle
""")


def review(connection: Connection, by: str, done: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Write each role's state, with what was `done` for it; return the roles that have work and run nothing."""
    parameters = {"by": by, "counted": COUNTED, "done": json.dumps({role: dict(did) for role, did in done.items()})}
    return [row.role for row in connection.execute(REVIEW, parameters) if row.idle]


def review_queues(app: Celeriac) -> int:
    """Run the Queue Master's review: rescue, removal, promotion, each role's state; wake idle queues with work up.

    Several at once do no harm: each task is rescued, removed and promoted once.
    """
    rescued, promoted = rescue_by_role(app.database, app.process_name), promote_by_role(app)
    dropped, removed = prune_by_role(app.database, app.settings)
    did = {"rescued": rescued, "removed": removed, "promoted": promoted}
    done = {role: {what: n[role] for what, n in did.items()} for role in {*rescued, *removed, *promoted}}
    with app.database.transaction() as connection:
        idle = review(connection, app.process_name, done)
    app.kick(idle)
    return rescued.total() + promoted.total() + dropped + removed.total()
