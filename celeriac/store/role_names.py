"""Names of roles: which are Celery's or the engine's own, and the lanes of a role, one for each of its queues.

State tables, tickets and passes name a lane, not a role. Lists omit built-in roles that have nothing to show.
"""

from __future__ import annotations

from functools import lru_cache

_PREFIXES = ("celery.", "celeriac.")


def is_built_in(role: str) -> bool:
    """Return whether no user has declared the role: `celery.map` and its like."""
    return role.startswith(_PREFIXES)


def lane_of(role: str, queue: str | None) -> str:
    """Return the lane of a role's tasks in this queue; None: in its first. `celeriac.lane` is the same in SQL.

    Names of roles and queues have no comma.
    """
    return role if queue is None else f"{role},{queue}"


@lru_cache(maxsize=4096)
def parts_of_lane(lane: str) -> tuple[str, str | None]:
    """Return the role and the queue of a lane; None: the role's first."""
    role, _, queue = lane.partition(",")
    return role, queue or None
