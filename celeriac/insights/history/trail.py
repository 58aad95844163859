"""The audit trail, filtered: who did what, to what, and when."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.insights.fleet.system import audit_trail

#: Maximum number of the newest remaining entries that are read for a page: a filter has no index of its own.
LOOK = 10_000

MOST = 1_000

LOOKED = text("""
SELECT coalesce(min(id), 0) AS oldest, count(*) AS n FROM (
    SELECT id FROM celeriac.audit WHERE id < coalesce(CAST(:before AS bigint), 9223372036854775807)
    ORDER BY id DESC LIMIT :look) AS newest
""")

# INVARIANT: no entry before :oldest is read.
ENTRIES = text("""
SELECT * FROM celeriac.audit
WHERE id >= :oldest AND id < coalesce(CAST(:before AS bigint), 9223372036854775807)
    AND (CAST(:by AS text) IS NULL OR by = :by) AND (CAST(:action AS text) IS NULL OR action = :action)
    AND (CAST(:kind AS text) IS NULL OR kind = :kind) AND (CAST(:target AS text) IS NULL OR target = :target)
    AND (CAST(:via AS text) IS NULL OR via = :via)
    AND (CAST(:newer_than AS double precision) IS NULL
        OR at > statement_timestamp() - CAST(:newer_than AS double precision) * interval '1 second')
ORDER BY id DESC LIMIT :most
""")


@dataclass(frozen=True, slots=True)
class Of:
    """A filter of the trail; None matches anything. `newer_than`: seconds."""

    by: str | None = None
    action: str | None = None
    kind: str | None = None
    target: str | None = None
    via: str | None = None
    newer_than: float | None = None


@dataclass(frozen=True, slots=True)
class Trail:
    """A page of the trail. `items`: newest first. `next`: where it goes on, None at the end; pages may be short."""

    items: list[dict[str, Any]]
    next: str | None


def trail(connection: Connection, wanted: Of, *, limit: int = 100, after: str | None = None) -> Trail:
    """Return a page: the newest, or those before the entry `after`. At most 10,000 entries are read for it."""
    if not 1 <= limit <= MOST:
        raise BadValue(f"limit={limit}: give 1 to {MOST:,}")
    before = None if after is None else int(after)
    if wanted in (Of(), Of(kind=wanted.kind, target=wanted.target)) and (wanted.kind is None) == (
        wanted.target is None
    ):  # these filters have an index
        entries = audit_trail(connection, kind=wanted.kind, target=wanted.target, limit=limit + 1, before=before)
        return Trail(entries[:limit], str(entries[limit - 1]["id"]) if len(entries) > limit else None)
    looked = connection.execute(LOOKED, {"before": before, "look": LOOK}).one()
    parameters = asdict(wanted) | {"before": before, "oldest": looked.oldest, "most": limit + 1}
    entries = [dict(row) for row in connection.execute(ENTRIES, parameters).mappings()]
    if len(entries) > limit:
        return Trail(entries[:limit], str(entries[limit - 1]["id"]))
    return Trail(entries, str(looked.oldest) if looked.n == LOOK else None)
