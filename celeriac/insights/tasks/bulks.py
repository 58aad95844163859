"""Bulk actions: what was requested, for which tasks, and the progress."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import BadValue, Unknown
from celeriac.insights.tasks.lists import MOST_ROWS

BULKS = text("""
SELECT *, asked - done - skipped AS left, CAST(extract(epoch FROM
    coalesce(ended_at, statement_timestamp()) - moving_since) AS double precision) AS seconds
FROM celeriac.bulk_actions
WHERE id < coalesce(CAST(:before AS bigint), 9223372036854775807) ORDER BY id DESC LIMIT :most
""")


def bulks(connection: Connection, *, limit: int = 100, before: int | None = None) -> list[dict[str, Any]]:
    """Return bulk actions, newest first. `asked`: how many tasks are gathered so far; `left`: how many of them have
    still to be moved, after `seconds` of moving. Raises BadValue.
    """
    if not 1 <= limit <= MOST_ROWS + 1:  # one more than a page shows whether there is a following one
        raise BadValue(f"limit={limit}: give 1 to {MOST_ROWS:,}")
    return [dict(row) for row in connection.execute(BULKS, {"before": before, "most": limit}).mappings()]


def bulk(connection: Connection, number: int) -> dict[str, Any]:
    """Return one bulk action. Raises Unknown."""
    rows = bulks(connection, limit=1, before=number + 1)
    if not rows or rows[0]["id"] != number:
        raise Unknown(f"there is no bulk {number}")
    return rows[0]
