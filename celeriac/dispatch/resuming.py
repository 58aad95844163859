"""Resume points: where the last pass stopped in each account's line, while scanning from its front is dear.

Under somebody's old transaction entries that are gone stay in the index, and a scan from an account's front walks over
all of them. A pass that did so slowly leaves the last entry it took of each account, and the next ones go on behind
those, so that scans from the front take a tenth of the time at most. What comes in front of a resume point meanwhile
(a higher priority, another account, a retry) waits for the next scan: docs/decisions/0025.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

#: A scan from the front that took so long (seconds), where so many entries are dead, leaves resume points, for so many
#: times as long, at most `LONGEST`.
DEAR = 0.01
DEAD = 5_000
TIMES = 10
LONGEST = 2.0

#: Of so many accounts at most: they are written with each pass.
MOST = 64

#: The priority, due time and id of an entry, as JSON has them.
Point = list[int | str]
Points = Mapping[str, Point]


@dataclass(frozen=True, slots=True)
class Resume:
    """What the next pass goes on from. `seconds`: for how long; None: no longer than was said before."""

    points: Points
    seconds: float | None = None


def after_scan(took: float, accounts: Collection[str], reached: Points) -> Resume | None:
    """After a scan of these accounts' fronts in so many seconds; None: the next pass scans as well."""
    is_dear = took >= DEAR and len(accounts) <= MOST and reached.keys() == set(accounts)
    return Resume(reached, min(TIMES * took, LONGEST)) if is_dear else None


def after_resuming(points: Points, given: Collection[str], reached: Points) -> Resume | None:
    """After a pass that went on from `points`; None where it came to an account's end, or met a locked entry."""
    return Resume({**points, **reached}) if reached.keys() == set(given) else None


def behind(account: str) -> str:
    """SQL: entries of `ready` behind the account's resume point in `:points`, of its priority."""
    point = f"CAST(:points AS jsonb) -> {account}"
    return (
        f" AND priority = CAST({point} ->> 0 AS integer)"
        f" AND (due_at, id) > (CAST({point} ->> 1 AS timestamptz), CAST({point} ->> 2 AS bigint))"
    )
