"""Record what each pass saw and decided, and where the next one goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from celeriac.dispatch.fairness import Claimant
from celeriac.dispatch.resuming import Resume
from celeriac.dispatch.select import HeldSince

#: SQL for the generation of the role's row in `batchers`, which only a pass of the role changes.
GENERATION = "coalesce((SELECT generation FROM celeriac.batcher(:role)), 0)"

RECORD = text(f"""
WITH pass AS (
    INSERT INTO celeriac.passes (role, by, free, claimants, given, cursor_before, cursor_after, took_ms)
    VALUES (:role, :by, :free, CAST(:claimants AS jsonb), CAST(:given AS jsonb), :before, :after, :took_ms)
    RETURNING id
)
INSERT INTO celeriac.batchers (
    role, generation, cursor, last_pass, held_since, held_next, held_xid, points, rescan_at, passes)
SELECT :role, {GENERATION}, :after, id, coalesce(CAST(:held_since AS timestamptz), '-infinity'),
    CAST(:held_next AS timestamptz), CAST(:held_xid AS xid8), CAST(:points AS jsonb),
    clock_timestamp() + CAST(:seconds AS double precision) * interval '1 second', 1
FROM pass
ON CONFLICT (role, generation) DO UPDATE
SET generation = (batchers.passes + 1) / 100, cursor = excluded.cursor, last_pass = excluded.last_pass,
    held_since = excluded.held_since, held_next = excluded.held_next, held_xid = excluded.held_xid,
    points = excluded.points, rescan_at = coalesce(excluded.rescan_at, batchers.rescan_at),
    passes = batchers.passes + 1
""")

# An empty pass with the same reason as the last one only increases that one's count; a last pass that was not empty
# stays as it is. At most 1,000 times: under an old transaction each update leaves a version that vacuum cannot remove.
REPEAT = text("""
UPDATE celeriac.passes SET repeated = repeated + 1, last_at = statement_timestamp(), took_ms = :took_ms
WHERE id = :last_pass AND why_nothing = :why AND repeated < 1000
RETURNING true
""")

NOTHING = text(f"""
WITH pass AS (
    INSERT INTO celeriac.passes (role, by, free, claimants, cursor_before, cursor_after, why_nothing, took_ms)
    VALUES (:role, :by, :free, CAST(:claimants AS jsonb), :before, :before, :why, :took_ms) RETURNING id
)
INSERT INTO celeriac.batchers (role, generation, cursor, last_pass) SELECT :role, {GENERATION}, :before, id FROM pass
ON CONFLICT (role, generation) DO UPDATE SET last_pass = excluded.last_pass
""")

# Roles whose tasks start without passes need a recent `held_since`, too, because each check reads all tickets since
# then.
STILL_HELD = text(f"""
UPDATE celeriac.batchers
SET held_since = CAST(:held_since AS timestamptz), held_next = CAST(:held_next AS timestamptz),
    held_xid = CAST(:held_xid AS xid8)
WHERE role = :role AND generation = {GENERATION} AND (
    held_next IS NULL OR held_next < CAST(:held_next AS timestamptz) - interval '1 minute'
    OR held_next = CAST(:held_next AS timestamptz) AND held_xid <> CAST(:held_xid AS xid8))
""")

FORGET = text("UPDATE celeriac.batchers SET points = NULL WHERE role = :role AND points IS NOT NULL")


def done(
    connection: Connection,
    role: str,
    *,
    by: str,
    free: int,
    seen: Sequence[Claimant],
    claimed: Mapping[str, int],
    cursors: tuple[str, str],
    held: HeldSince,
    took_ms: float,
    resume: Resume | None,
) -> None:
    """Write what a pass saw and decided, the next pass's cursor and resume points, and `held_since`, before which no
    ticket of the role is left.
    """
    row = {
        "role": role,
        "by": by,
        "free": free,
        "took_ms": took_ms,
        "before": cursors[0],
        "after": cursors[1],
        **_held(held),
        "points": json.dumps(dict(resume.points)) if resume else None,
        "seconds": resume.seconds if resume else None,
    }
    connection.execute(RECORD, row | {"claimants": _as_json(seen), "given": json.dumps(claimed)})


def nothing(
    connection: Connection, role: str, *, by: str, free: int, seen: Sequence[Claimant], cursor: str,
    last_pass: int | None, why: str, took_ms: float,
) -> None:  # fmt: skip
    """Write why a pass claimed nothing; a repeated reason is counted in the last row."""
    repeat = {"last_pass": last_pass, "why": why, "took_ms": took_ms}
    if last_pass is not None and connection.execute(REPEAT, repeat).scalar_one_or_none():
        return
    row = {"role": role, "by": by, "free": free, "claimants": _as_json(seen), "before": cursor}
    connection.execute(NOTHING, row | {"why": why, "took_ms": took_ms})


def still_held(connection: Connection, role: str, held: HeldSince) -> None:
    """Write `held_since` after a pass that claimed nothing, at most once a minute."""
    if held.since is not None:
        connection.execute(STILL_HELD, {"role": role, **_held(held)})


def _held(held: HeldSince) -> dict[str, str | None]:
    return {"held_since": held.since, "held_next": held.next, "held_xid": held.xid}


def forget(connection: Connection, role: str) -> None:
    """Delete the role's resume points, because no entry is behind them."""
    connection.execute(FORGET, {"role": role})


def _as_json(seen: Sequence[Claimant]) -> str:
    def described(c: Claimant) -> dict[str, Any]:
        plain = {"account": c.account, "waiting": c.waiting}
        more = {"holding": c.holding, "weight": c.weight, "cap": c.cap}
        return plain | {k: v for k, v in more.items() if v != {"holding": 0, "weight": 1.0, "cap": None}[k]}

    return json.dumps([described(c) for c in seen])
