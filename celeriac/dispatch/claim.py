"""Claim: mark the chosen rows as one pass's, with one token."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.dispatch.fairness import Claimant

# INVARIANT of `taken`: each account's best rows by (priority, due time, id); a row somebody else has locked is
# passed over. Ready rows lead their lock key, so no claim can meet a held lock.
# The update gets their ids as an array: a join may be planned as a scan of the whole table.
CLAIM = text("""
WITH taken AS (
    SELECT best.id, best.rank, share.place
    FROM unnest(CAST(:accounts AS text[]), CAST(:slots AS integer[])) WITH ORDINALITY AS share (account, n, place),
    LATERAL (
        SELECT ready.id, row_number() OVER () AS rank FROM (
            SELECT id FROM worker_tasks
            WHERE role = :role AND status = 'pending' AND waits_for IS NULL AND account = share.account
            ORDER BY priority DESC, scheduled_for, id
            LIMIT share.n FOR UPDATE SKIP LOCKED
        ) AS ready
    ) AS best
), claimed AS (
    UPDATE worker_tasks t
    SET status = 'claimed', token = CAST(:token AS uuid),
        claimed_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE t.id = ANY (ARRAY(SELECT id FROM taken))
    RETURNING t.id, t.account, t.losses
)
SELECT id, account, losses FROM claimed JOIN taken USING (id) ORDER BY rank, place
""")

# Rows named by id, where they are ready and their account is neither paused nor bounded; the rest a pass decides on.
RESUME = text("""
WITH taken AS (
    SELECT t.id FROM worker_tasks t
    WHERE t.id = ANY(CAST(:ids AS bigint[])) AND t.status = 'pending' AND t.waits_for IS NULL
        AND NOT EXISTS (SELECT FROM account_policies p WHERE p.account = t.account AND (p.paused OR p.cap IS NOT NULL))
    ORDER BY t.priority DESC, t.scheduled_for, t.id LIMIT :room FOR UPDATE OF t SKIP LOCKED
)
UPDATE worker_tasks t
SET status = 'claimed', token = CAST(:token AS uuid), claimed_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE t.id = ANY (ARRAY(SELECT id FROM taken))
RETURNING t.id
""")

# INVARIANT: nothing else of the role is ready, few are active, and neither role nor account is paused or bounded: a
# pass would claim this row, and nothing else. For a worker that starts it in the same breath.
CLAIM_LONE = text("""
UPDATE worker_tasks t
SET status = 'claimed', token = CAST(:token AS uuid), claimed_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE t.id = :id AND t.role = :role AND t.status = 'pending' AND t.waits_for IS NULL
    AND (SELECT true FROM worker_tasks
        WHERE role = :role AND status = 'pending' AND waits_for IS NULL AND id <> :id ORDER BY account LIMIT 1) IS NULL
    AND (SELECT count(*) < :few FROM (
        SELECT FROM worker_tasks WHERE role = :role AND status IN ('claimed', 'running')
        ORDER BY account LIMIT :few) AS active)
    AND NOT EXISTS (SELECT FROM roles WHERE role = :role AND paused)
    AND NOT EXISTS (SELECT FROM account_policies p WHERE p.account = t.account AND (p.paused OR p.cap IS NOT NULL))
""")

#: A role with fewer active tasks than this is idle.
FEW = 16

RECORD = text("""
WITH pass AS (
    INSERT INTO passes (role, by, free, claimants, given, cursor_before, cursor_after, took_ms)
    VALUES (:role, :by, :free, CAST(:claimants AS jsonb), CAST(:given AS jsonb), :before, :after, :took_ms)
    RETURNING id
)
INSERT INTO batchers (role, cursor, last_pass) SELECT :role, :after, id FROM pass
ON CONFLICT (role) DO UPDATE
SET cursor = excluded.cursor, last_pass = excluded.last_pass, updated_at = statement_timestamp()
""")

# An empty pass for the reason of the last one only counts up; the guard keeps it so when the last one was not empty.
REPEAT = text("""
UPDATE passes SET repeated = repeated + 1, last_at = statement_timestamp(), took_ms = :took_ms
WHERE id = :last_pass AND why_nothing = :why
""")

NOTHING = text("""
WITH pass AS (
    INSERT INTO passes (role, by, free, claimants, cursor_before, cursor_after, why_nothing, took_ms)
    VALUES (:role, :by, :free, CAST(:claimants AS jsonb), :before, :before, :why, :took_ms) RETURNING id
)
INSERT INTO batchers (role, cursor, last_pass) SELECT :role, :before, id FROM pass
ON CONFLICT (role) DO UPDATE SET last_pass = excluded.last_pass, updated_at = statement_timestamp()
""")


@dataclass(frozen=True, slots=True)
class Claimed:
    """The rows a pass got, accounts taking turns: by id, how often each was lost. `given`: how many of each account."""

    losses: dict[int, int]
    given: dict[str, int]


def claim(connection: Connection, role: str, shares: Mapping[str, int], token: str) -> Claimed:
    """Less than its share gets an account some of whose rows somebody else has locked."""
    if not shares:
        return Claimed({}, {})
    found = connection.execute(
        CLAIM, {"role": role, "accounts": list(shares), "slots": list(shares.values()), "token": token}
    ).all()
    return Claimed({row.id: row.losses for row in found}, dict(Counter(row.account for row in found)))


def resume(connection: Connection, ids: Sequence[int], room: int, token: str) -> list[int]:
    """Claims up to `room` of these rows, where nothing but a free slot is needed."""
    return list(connection.execute(RESUME, {"ids": list(ids), "room": room, "token": token}).scalars())


def record_pass(
    connection: Connection,
    role: str,
    *,
    by: str,
    free: int,
    seen: Sequence[Claimant],
    given: Mapping[str, int],
    cursors: tuple[str, str],
    took_ms: float,
) -> None:
    """What was seen and decided, and the cursor for the next pass."""
    row = {
        "role": role,
        "by": by,
        "free": free,
        "took_ms": took_ms,
        "before": cursors[0],
        "after": cursors[1],
    }
    connection.execute(RECORD, row | {"claimants": _as_json(seen), "given": json.dumps(given)})


def record_nothing(
    connection: Connection, role: str, *, by: str, free: int, seen: Sequence[Claimant], cursor: str,
    last_pass: int | None, why: str, took_ms: float,
) -> None:  # fmt: skip
    """Why a pass claimed nothing; the same reason again is folded into the last row."""
    repeat = {"last_pass": last_pass, "why": why, "took_ms": took_ms}
    if last_pass is not None and connection.execute(REPEAT, repeat).rowcount:
        return
    row = {"role": role, "by": by, "free": free, "claimants": _as_json(seen), "before": cursor}
    connection.execute(NOTHING, row | {"why": why, "took_ms": took_ms})


def _as_json(seen: Sequence[Claimant]) -> str:
    def described(c: Claimant) -> dict[str, Any]:
        plain = {"account": c.account, "waiting": c.waiting}
        more = {"holding": c.holding, "weight": c.weight, "cap": c.cap}
        return plain | {k: v for k, v in more.items() if v != {"holding": 0, "weight": 1.0, "cap": None}[k]}

    return json.dumps([described(c) for c in seen])
