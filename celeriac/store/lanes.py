"""Lanes: the names that state tables, tickets and passes have for a role's tasks, one for each of its queues."""

from __future__ import annotations


def lane_of(role: str, queue: str | None) -> str:
    """Return the lane of a role's tasks in this queue; None: in its first. `celeriac.lane` is the same in SQL.

    Names of roles and queues have no comma.
    """
    return role if queue is None else f"{role},{queue}"


def parts_of_lane(lane: str) -> tuple[str, str | None]:
    """Return the role and the queue of a lane; None: the role's first."""
    role, _, queue = lane.partition(",")
    return role, queue or None
