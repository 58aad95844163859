"""Resume points: where the last pass stopped in each account's line, while scanning from its front is dear.

Under somebody's old transaction entries that are gone stay in the index, and a scan from an account's front walks over
all of them. A pass that looked slowly leaves the last entry it took of each account, and the next ones go on behind
those for twenty times as long as the look took. What comes in front of a resume point meanwhile (a higher priority, a
retry), and an account that has none, wait for the next scan: docs/decisions/0025.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

#: A look from the front that took so long (seconds), and so much longer for each account, where so many entries are
#: dead, leaves resume points, for so many times as long, at most `LONGEST`: the claim and whoever asks for work walk
#: over the same entries, and take as long again.
DEAR, EACH = 0.002, 100e-6
DEAD = 20_000
TIMES = 20
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


def after_scan(looked: float, accounts: int, points: Callable[[], Points], dead: Callable[[], int]) -> Resume | None:
    """After a look at so many accounts' fronts in so many seconds, and the claim; None: the next pass looks as well.

    `points` and `dead` are asked only after a slow one.
    """
    if looked < DEAR + EACH * accounts or accounts > MOST or dead() < DEAD:
        return None
    return Resume(points(), min(TIMES * looked, LONGEST))


def after_resuming(points: Points, accounts: Collection[str], reached: Points) -> Resume | None:
    """After a pass that went on from `points`; None where some account got less, as others have its entries locked."""
    return Resume({**points, **reached}) if reached.keys() == set(accounts) else None


def behind(account: str) -> str:
    """SQL: entries of `ready` behind the account's resume point in `:points`, of its priority."""
    point = f"CAST(:points AS jsonb) -> {account}"
    return (
        f" AND priority = CAST({point} ->> 0 AS integer)"
        f" AND (due_at, id) > (CAST({point} ->> 1 AS timestamptz), CAST({point} ->> 2 AS bigint))"
    )
