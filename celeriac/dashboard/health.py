"""A role's health in a word, from its figures alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from celeriac.insights import RoleDepth
from celeriac.insights.fleet.one_role import Pace

#: Number of passes' intervals for which a task has to be ready, while nothing is claimed, before a role is stuck.
PASSES = 3

#: The meaning of each word, the worst first.
MEANS: Final = {
    "stuck": "tasks have been ready for three passes' time, and nothing is claimed or runs",
    "no workers": "tasks could run, and no worker takes its queue",
    "failing": "far more of its attempts fail than before",
    "behind": "more comes than begins, or a task has been ready for longer than it should",
    "stale": "a task's worker fell silent",
    "paused": "nothing is claimed until it is resumed",
    "full": "its window is used up",
    "ok": "work is flowing",
    "waits": "nothing is due yet: what waits has a time to come, or stands behind other tasks",
    "idle": "nothing waits or runs",
}


def health(
    depth: RoleDepth, capacity: Mapping[str, Any] | None, pace: Pace, usual: float, *, burns: bool = False
) -> str:
    """Return the word. `capacity`: the role's row of `insights.capacity`. `usual`: seconds that a task may be ready if
    the role has no objective, as for the alert `long_wait`. `burns`: far more of its attempts fail than before.
    """
    held, oldest = depth.claimed + depth.running, depth.oldest_ready_seconds or 0.0
    if depth.paused:
        return "paused"
    if burns:
        return "failing"
    if not held and not depth.ready.n:
        return "waits" if depth.pending.n else "idle"
    if capacity is not None and not capacity["active_workers"]:
        return "no workers"
    if depth.stale:
        return "stale"
    if depth.ready.n and not held and oldest > PASSES * pace.every:
        return "stuck"
    if oldest > (usual if pace.objective is None else pace.objective) or (depth.ready.n and pace.falls_behind):
        return "behind"
    if depth.window is not None and held >= depth.window:
        return "full"
    return "ok"
