"""What an account received within the last hour beside what would have been fair, from what passes recorded.

Fair is its share, by weight, of the slots that passes gave out while it had something waiting: over an hour, whatever
it held before, no account should fall behind that (`celeriac.insights.fairness.shares.fair_slots`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from celeriac.insights.fairness.shares import Claim, fair_slots

#: Minutes of a step, steps of the hour, and passes that are looked at, the newest first.
STEP, STEPS, PASSES = 5, 12, 2_000

BEGIN = text("""
SELECT date_bin(:step * interval '1 minute', statement_timestamp(), '2000-01-01 00:00:00+00')
    - :step * (:steps - 1) * interval '1 minute'
""")

OF_ACCOUNT = text("""
SELECT at, claimants, given, n FROM (
    SELECT at, claimants, given, row_number() OVER (ORDER BY id DESC) AS n FROM celeriac.passes
    ORDER BY id DESC LIMIT :most) AS newest
WHERE at >= :begin
    AND (n = :most OR claimants @> jsonb_build_array(jsonb_build_object('account', CAST(:account AS text))))
""")


@dataclass(frozen=True, slots=True)
class ReceivedStep:
    """`at`: when it begins. `slots`: what passes gave the account within it, of all roles; `fair`: see above."""

    at: datetime
    slots: int
    fair: float


@dataclass(frozen=True, slots=True)
class Received:
    """`slots` and `fair`: of the whole hour. `is_all` False: it had more passes than are looked at."""

    slots: int
    fair: float
    is_all: bool
    steps: list[ReceivedStep]


def received_by(connection: Connection, account: str) -> Received:
    """Of the hour that ends with the step under way, the oldest first. What starts without a pass is not in it."""
    begin = connection.execute(BEGIN, {"step": STEP, "steps": STEPS}).scalar_one()
    rows = connection.execute(OF_ACCOUNT, {"account": account, "most": PASSES, "begin": begin}).all()
    slots, fair = [0] * STEPS, [0.0] * STEPS
    for row in rows:
        step = min(STEPS - 1, int((row.at - begin) / timedelta(minutes=STEP)))
        slots[step] += row.given.get(account, 0)
        fair[step] += fair_of(account, row.claimants, sum(row.given.values()))
    steps = [ReceivedStep(begin + timedelta(minutes=STEP * n), slots[n], round(fair[n], 2)) for n in range(STEPS)]
    return Received(sum(slots), round(sum(fair), 2), is_all=not any(row.n == PASSES for row in rows), steps=steps)


def fair_of(account: str, seen: Sequence[Mapping[str, Any]], slots: int) -> float:
    """Of `slots` that were given out among these, as a pass recorded them."""
    shares = fair_slots([Claim(_wants(one), one.get("weight", 1.0)) for one in seen], slots)
    return sum(share for one, share in zip(seen, shares, strict=True) if one["account"] == account)


def _wants(one: Mapping[str, Any]) -> int:
    """What it had waiting, as far as its cap allowed."""
    cap = one.get("cap")
    room = one["waiting"] if cap is None else cap - one.get("holding", 0)
    return max(0, min(one["waiting"], room))
