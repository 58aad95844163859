"""Age: what has waited long gains priority, a step at a time, up to a ceiling.

How far a row has come is a function of how long it has waited since it was due (`scheduled_for`): however often the
sweep runs, nobody is raised twice for the same wait. `aged` is what of its priority is due to that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.repair.batch import BATCH

if TYPE_CHECKING:
    from celeriac.app import Celeriac


@dataclass(frozen=True, slots=True)
class Aging:
    """`step` points after `after` seconds, again every `every` seconds, below `ceiling` and the role's own bound."""

    after: float
    every: float
    step: int
    ceiling: int


# INVARIANT of `levels`, `due`: one descent into worker_tasks_aging for each distinct number of points, and only rows
# that gain from it are read. A row that came to the ceiling, or asked for more from the start, leaves that index.
AGE = text("""
WITH RECURSIVE levels AS (
    (SELECT aged FROM worker_tasks
        WHERE status = 'pending' AND waits_for IS NULL AND ages ORDER BY aged LIMIT 1)
    UNION ALL
    SELECT next.aged FROM levels, LATERAL (
        SELECT aged FROM worker_tasks
        WHERE status = 'pending' AND waits_for IS NULL AND ages AND aged > levels.aged ORDER BY aged LIMIT 1) AS next
), due AS (
    SELECT found.id FROM levels, LATERAL (
        SELECT id FROM worker_tasks
        WHERE status = 'pending' AND waits_for IS NULL AND ages AND aged = levels.aged
            AND scheduled_for <= statement_timestamp()
                - (:after + levels.aged::double precision / :step * :every) * interval '1 second'
        ORDER BY scheduled_for LIMIT :batch FOR UPDATE SKIP LOCKED) AS found
    LIMIT :batch
), bounded AS (
    SELECT t.id, t.priority - t.aged AS own, t.scheduled_for,
        least(CAST(:ceiling AS integer), (r.definition #>> '{priority_range,1}')::integer) AS ceiling
    FROM worker_tasks t LEFT JOIN roles r ON r.role = t.role WHERE t.id = ANY (ARRAY(SELECT id FROM due))
), raised AS (
    SELECT id, own, ceiling, greatest(0, least(
        ceiling - own,
        :step * (1 + floor((extract(epoch FROM statement_timestamp() - scheduled_for) - :after) / :every)::integer)
    )) AS points
    FROM bounded
)
UPDATE worker_tasks t
SET aged = greatest(t.aged, r.points), priority = r.own + greatest(t.aged, r.points),
    ages = r.own + r.points < r.ceiling, updated_at = clock_timestamp()
FROM raised r WHERE t.id = r.id AND t.id = ANY (ARRAY(SELECT id FROM due))
""")


def age(connection: Connection, aging: Aging, batch: int) -> int:
    """Raises up to `batch` rows; how many there were."""
    given = {"after": aging.after, "every": aging.every, "step": aging.step, "ceiling": aging.ceiling}
    return connection.execute(AGE, given | {"batch": batch}).rowcount


def raise_old(app: Celeriac) -> int:
    """What has waited long gains priority: see `celeriac.repair.aging`."""
    s = app.settings
    aging, raised = Aging(s.aging_after, s.aging_interval, int(s.aging_step), int(s.aging_ceiling)), 0
    while True:
        with app.database.transaction() as connection:
            some = age(connection, aging, BATCH)
        raised += some
        if some < BATCH:
            return raised
