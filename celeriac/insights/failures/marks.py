"""What is known of failures that are the same, beside that they failed: what somebody said, and who tries it still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, text

from celeriac.store.alike import pattern_of

#: Of a role, so many tasks that wait for their time are looked at: those that are due first.
LOOKS_AT = 500

MARKS = text("""
SELECT fingerprint, state, note, by, at FROM celeriac.failure_marks
WHERE fingerprint = ANY (CAST(:fingerprints AS text[]))
""")

# A task in it whose last attempt failed waits for the next one. Each is looked up by its id.
RETRYING = text("""
SELECT r.role, left(split_part(t.error_message, chr(10), 1), 500) AS message
FROM unnest(CAST(:roles AS text[])) AS r (role), LATERAL (
    SELECT id FROM celeriac.later WHERE role = r.role ORDER BY due_at LIMIT :most) AS l, LATERAL (
    SELECT error_message FROM celeriac.tasks WHERE id = l.id LIMIT 1) AS t
WHERE t.error_message IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class Mark:
    """`reopened`: it was resolved, and failed again since; then its state is open."""

    state: Literal["open", "known", "resolved"] = "open"
    note: str | None = None
    by: str | None = None
    at: datetime | None = None
    reopened: bool = False


#: Of what nobody has said anything.
OPEN = Mark()


def marks(connection: Connection, last_seen: dict[str, datetime]) -> dict[str, Mark]:
    """Of these fingerprints, each with when it failed last."""
    rows = connection.execute(MARKS, {"fingerprints": list(last_seen)}).all() if last_seen else ()
    made = {row.fingerprint: Mark(row.state, row.note, row.by, row.at) for row in rows}
    return {fingerprint: _now(mark, last_seen[fingerprint]) for fingerprint, mark in made.items()}


def _now(mark: Mark, last_seen: datetime) -> Mark:
    """It opens by itself."""
    if mark.state == "resolved" and mark.at is not None and last_seen > mark.at:
        return replace(mark, state="open", reopened=True)
    return mark


def retrying(connection: Connection, roles: Collection[str]) -> Counter[tuple[str, str]]:
    """By role and pattern: tasks whose last attempt failed so, and that are tried again."""
    rows = connection.execute(RETRYING, {"roles": sorted(roles), "most": LOOKS_AT}).all() if roles else ()
    return Counter((row.role, pattern_of(row.message)) for row in rows)
