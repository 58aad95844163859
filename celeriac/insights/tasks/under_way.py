"""Running workflows: those that have an unfinished part."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

#: Most parts of a workflow that are counted.
COUNTED = 1_000

# INVARIANT: a descent of the index for each workflow returned, then at most COUNTED of its parts. BETWEEN: with "="
# Postgres could walk an index by id alone, past all other tasks.
UNDER_WAY = text("""
WITH RECURSIVE walk AS (
    (SELECT workflow FROM celeriac.tasks WHERE workflow > CAST(:after AS text) ORDER BY workflow LIMIT 1)
    UNION ALL
    SELECT next.workflow FROM walk, LATERAL (
        SELECT workflow FROM celeriac.tasks WHERE workflow > walk.workflow ORDER BY workflow LIMIT 1) AS next
), page AS MATERIALIZED (SELECT workflow FROM walk LIMIT CAST(:most AS integer))
SELECT page.workflow AS id, first.role, first.created_at,
    (SELECT count(*) FROM (
        SELECT FROM celeriac.tasks WHERE workflow BETWEEN page.workflow AND page.workflow LIMIT :counted) AS told
    ) AS unfinished,
    (SELECT count(*) FROM (
        SELECT FROM celeriac.ended WHERE workflow BETWEEN page.workflow AND page.workflow LIMIT :counted) AS told
    ) AS finished
FROM page, LATERAL (
    SELECT role, created_at FROM celeriac.tasks WHERE workflow BETWEEN page.workflow AND page.workflow
    ORDER BY workflow, id LIMIT 1) AS first
ORDER BY page.workflow
""")


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A running workflow. `role`, `created_at`: those of its first unfinished part. A count of COUNTED means at least
    as many.
    """

    id: str
    role: str
    created_at: datetime
    unfinished: int
    finished: int


def workflows_under_way(connection: Connection, *, limit: int = 100, after: str | None = None) -> list[UnderWay]:
    """Return workflows by id, those after `after`. One whose last part ends meanwhile is left out."""
    wanted = {"after": after or "", "most": limit, "counted": COUNTED}
    return [UnderWay(*row) for row in connection.execute(UNDER_WAY, wanted)]
