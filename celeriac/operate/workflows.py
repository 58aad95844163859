"""Cancel of a whole workflow: all of its parts, a bounded transaction at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sqlalchemy import text

from celeriac.operate import steer
from celeriac.operate.audit import AuditedTogether
from celeriac.operate.steer import Steered
from celeriac.store.connections import Database

#: Parts that are looked at in one statement.
LOOKS_AT = 2_000

# Those that run and were asked to stop need not be asked again; what `celeriac.fall_out` left ends the links of a
# cancelled part. BETWEEN: were it said to be one value, an order by id alone would be as good, which passes by all
# other tasks'.
OPEN = text("""
SELECT id, cancel_requested_at IS NULL AND headers #> '{canvas,fall_out}' IS NULL
    AND (NOT :waiting OR (SELECT true FROM celeriac.barriers b WHERE b.id = t.id) IS NOT NULL) AS meant
FROM celeriac.tasks t
WHERE workflow BETWEEN :workflow AND :workflow AND (workflow, id) > (:workflow, :after)
ORDER BY workflow, id LIMIT :looks_at
""")

# INVARIANT: one statement. What is admitted from the outbox meanwhile was there, or is among the tasks.
DROP = text("""
WITH dropped AS (DELETE FROM celeriac.intake WHERE task ->> 'workflow' = :workflow)
SELECT EXISTS (SELECT FROM celeriac.intake WHERE task ->> 'workflow' = :workflow)
    OR EXISTS (SELECT FROM celeriac.tasks
        WHERE workflow = :workflow AND cancel_requested_at IS NULL AND headers #> '{canvas,fall_out}' IS NULL)
""")


def cancel(
    database: Database, workflow: str, *, by: str, why: str = "", patience: float | None = None
) -> Iterator[Steered]:
    """As `steer.cancel` for each part; said again, it changes nothing. `workflow`: the id its parts have in common.

    What waits for members goes first, so that nobody's end lets it through. A part that ends while it is waited for
    leaves its links, and what the outbox has of it is dropped: they are looked for until none is left. `patience`: as
    `Database.transaction` has it.
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
    """The ids of its parts, only of those that wait for members if `waiting`."""
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
