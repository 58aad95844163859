"""The slots an account received within the last hour beside its fair share, by the record of dispatch cycles (passes).

The fair share is its part, by weight, of the slots that passes gave out while it had something waiting. Over an hour,
whatever it held before, no account should fall behind that (`celeriac.insights.fairness.shares.fair_slots`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from celeriac.insights.fairness.shares import Claim, fair_slots

#: Minutes of a step, steps of the hour, and passes that are read, the newest first.
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
    """One step of the hour, from `at` on. `slots`: given to the account by all roles' passes; `fair`: fair share."""

    at: datetime
    slots: int
    fair: float


@dataclass(frozen=True, slots=True)
class Received:
    """An account's slots. `slots`, `fair`: of the whole hour. `is_all` False: it had more passes than are read."""

    slots: int
    fair: float
    is_all: bool
    steps: list[ReceivedStep]


def received_by(connection: Connection, account: str) -> Received:
    """Return the hour that ends with the current step, oldest step first. What starts without a pass is not counted."""
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
    """Return the account's fair part of `slots`, among the accounts that a pass recorded."""
    shares = fair_slots([Claim(_wants(one), one.get("weight", 1.0)) for one in seen], slots)
    return sum(share for one, share in zip(seen, shares, strict=True) if one["account"] == account)


def _wants(one: Mapping[str, Any]) -> int:
    """Return how many waiting tasks the account could have started under its cap."""
    cap = one.get("cap")
    room = one["waiting"] if cap is None else cap - one.get("holding", 0)
    return max(0, min(one["waiting"], room))
