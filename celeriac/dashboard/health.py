"""How a role is, in a word, from its figures alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from celeriac.insights import RoleDepth

#: Seconds after which what is ready should have begun, and after which a role with nothing at work is stuck.
BEHIND, STUCK = 600.0, 90.0

#: What each word means, the worst first.
MEANS: Final = {
    "stuck": "tasks are ready, nothing is claimed or runs",
    "no workers": "tasks wait, and no worker takes its queue",
    "behind": "a task has been ready for over 10 minutes",
    "stale": "a task's worker fell silent",
    "paused": "nothing is claimed until it is resumed",
    "full": "its window is used up",
    "ok": "work is flowing",
    "idle": "nothing waits or runs",
}


def health(depth: RoleDepth, capacity: Mapping[str, Any] | None) -> str:
    """`capacity`: its row of `insights.capacity`, if there is one."""
    held, oldest = depth.claimed + depth.running, depth.oldest_ready_seconds or 0.0
    if depth.paused:
        return "paused"
    if not held and not depth.pending.n:
        return "idle"
    if capacity is not None and not capacity["active_workers"]:
        return "no workers"
    if depth.stale:
        return "stale"
    if depth.ready.n and not held and oldest > STUCK:
        return "stuck"
    if oldest > BEHIND:
        return "behind"
    if depth.window is not None and held >= depth.window:
        return "full"
    return "ok"
