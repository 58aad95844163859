"""Cancelling a workflow: all of its parts, a bounded transaction at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sqlalchemy import text

from celeriac.operate import steer
from celeriac.operate.audit import AuditedTogether
from celeriac.operate.steer import Steered
from celeriac.store.connections import Database

#: Parts that are read in one statement.
LOOKS_AT = 2_000

# A running part that was asked to stop is not asked again; a task of `celeriac.fall_out` ends the links of a cancelled
# part. BETWEEN: with "= :workflow" Postgres could walk an index by id alone, past all other tasks.
OPEN = text("""
SELECT id, cancel_requested_at IS NULL AND headers #> '{canvas,fall_out}' IS NULL
    AND (NOT :waiting OR (SELECT true FROM celeriac.barriers b WHERE b.id = t.id) IS NOT NULL) AS meant
FROM celeriac.tasks t
WHERE workflow BETWEEN :workflow AND :workflow AND (workflow, id) > (:workflow, :after)
ORDER BY workflow, id LIMIT :looks_at
""")

# INVARIANT: one statement. A task admitted from the outbox meanwhile is still seen there, or among the tasks.
DROP = text("""
WITH dropped AS (DELETE FROM celeriac.intake WHERE task ->> 'workflow' = :workflow)
SELECT EXISTS (SELECT FROM celeriac.intake WHERE task ->> 'workflow' = :workflow)
    OR EXISTS (SELECT FROM celeriac.tasks
        WHERE workflow = :workflow AND cancel_requested_at IS NULL AND headers #> '{canvas,fall_out}' IS NULL)
""")


def cancel(
    database: Database, workflow: str, *, by: str, why: str = "", patience: float | None = None
) -> Iterator[Steered]:
    """Cancel each part as `steer.cancel` does; repeating it changes nothing. `workflow`: the id its parts share.

    Parts that wait for members go first, so that no member's end lets them through. A part that ends meanwhile leaves
    its links, and its tasks in the outbox are dropped: the search repeats until none is left. `patience`: as for
    `Database.transaction`.
    """
    move = partial(steer.cancel, by=by, why=why or "its workflow was cancelled")
    many = AuditedTogether({"workflow": workflow})
    while True:
        for waiting in (True, False):
            for ids in _open(database, workflow, waiting):
                yield from steer.in_batches(database, ids, move, patience=patience, many=many)
        with database.transaction(patience=patience) as connection:
            if not connection.execute(DROP, {"workflow": workflow}).scalar_one():
                return


def _open(database: Database, workflow: str, waiting: bool) -> Iterator[list[int]]:
    """Yield the ids of its parts; with `waiting`, only of those that wait for members."""
    after = 0
    while True:
        wanted = {"workflow": workflow, "waiting": waiting, "after": after, "looks_at": LOOKS_AT}
        with database.reading() as connection:
            rows = connection.execute(OPEN, wanted).all()
        if ids := [row.id for row in rows if row.meant]:
            yield ids
        if len(rows) < LOOKS_AT:
            return
        after = rows[-1].id
