"""Marks on kinds of failures: somebody's note on each, and how many of its tasks are still retried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, text

from celeriac.store.messages import pattern_of

#: Maximum number of a role's scheduled tasks that are read: those that are due first.
LOOKS_AT = 500

MARKS = text("""
SELECT fingerprint, state, note, by, at FROM celeriac.failure_marks
WHERE fingerprint = ANY (CAST(:fingerprints AS text[]))
""")

# A task in `later` with an error waits for its next attempt. Each is looked up by its id.
RETRYING = text("""
SELECT r.role, left(split_part(t.error_message, chr(10), 1), 500) AS message
FROM unnest(CAST(:roles AS text[])) AS r (role), LATERAL (
    SELECT id FROM celeriac.later WHERE role = r.role ORDER BY due_at LIMIT :most) AS l, LATERAL (
    SELECT error_message FROM celeriac.tasks WHERE id = l.id LIMIT 1) AS t
WHERE t.error_message IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class Mark:
    """A note on a kind of failure. `reopened`: it was resolved and has failed again since; its state is then open."""

    state: Literal["open", "known", "resolved"] = "open"
    note: str | None = None
    by: str | None = None
    at: datetime | None = None
    reopened: bool = False


#: The mark of a kind without one.
OPEN = Mark()


def marks(connection: Connection, last_seen: dict[str, datetime]) -> dict[str, Mark]:
    """Return the marks of these fingerprints. `last_seen`: when each failed last."""
    rows = connection.execute(MARKS, {"fingerprints": list(last_seen)}).all() if last_seen else ()
    made = {row.fingerprint: Mark(row.state, row.note, row.by, row.at) for row in rows}
    return {fingerprint: _now(mark, last_seen[fingerprint]) for fingerprint, mark in made.items()}


def _now(mark: Mark, last_seen: datetime) -> Mark:
    """Return the mark with its present state: a resolved one opens again with a later failure."""
    if mark.state == "resolved" and mark.at is not None and last_seen > mark.at:
        return replace(mark, state="open", reopened=True)
    return mark


def retrying(connection: Connection, roles: Collection[str]) -> Counter[tuple[str, str]]:
    """Count, by role and pattern, the tasks whose last attempt failed in that way and that are tried again."""
    rows = connection.execute(RETRYING, {"roles": sorted(roles), "most": LOOKS_AT}).all() if roles else ()
    return Counter((row.role, pattern_of(row.message)) for row in rows)
