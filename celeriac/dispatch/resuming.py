"""Resume points: the entry at which the last pass stopped in each account, used while scanning from the front is slow.

Under somebody's old transaction deleted entries stay in the index, and a scan from an account's front reads all of
them. A pass whose scan was slow records the last entry it took of each account, and the next passes start behind
those, for twenty times as long as the scan took. New entries in front of a resume point (a higher priority, a retry),
and accounts without one, wait for the next scan: docs/decisions/0025.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

#: A scan from the front leaves resume points if it took `DEAR` seconds plus `EACH` an account, and `DEAD` entries are
#: dead. They are valid for `TIMES` as long as the scan took, at most `LONGEST` seconds: the claim and each check for
#: work would read the same entries and take as long again.
DEAR, EACH = 0.002, 100e-6
DEAD = 20_000
TIMES = 20
LONGEST = 2.0

#: The most accounts that get resume points, because each pass writes them.
MOST = 64

#: The priority, due time and id of an entry, as JSON values.
Point = list[int | str]
Points = Mapping[str, Point]


@dataclass(frozen=True, slots=True)
class Resume:
    """The points at which the next pass goes on. `seconds`: how long they are valid; None: until the time set
    before.
    """

    points: Points
    seconds: float | None = None


def after_scan(looked: float, accounts: int, points: Callable[[], Points], dead: Callable[[], int]) -> Resume | None:
    """Return resume points if a scan from the fronts of so many accounts took too long (seconds); None: the next pass
    scans, too.

    `points` and `dead` are called only after a slow scan.
    """
    if looked < DEAR + EACH * accounts or accounts > MOST or dead() < DEAD:
        return None
    return Resume(points(), min(TIMES * looked, LONGEST))


def after_resuming(points: Points, accounts: Collection[str], reached: Points) -> Resume | None:
    """Return the points after a pass that went on from `points`; None if an account got less because its entries were
    locked.
    """
    return Resume({**points, **reached}) if reached.keys() == set(accounts) else None


def behind(account: str) -> str:
    """Return SQL for entries of `ready` behind the account's resume point in `:points`, of its priority."""
    point = f"CAST(:points AS jsonb) -> {account}"
    return (
        f" AND priority = CAST({point} ->> 0 AS integer)"
        f" AND (due_at, id) > (CAST({point} ->> 1 AS timestamptz), CAST({point} ->> 2 AS bigint))"
    )
