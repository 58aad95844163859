"""The governor's decisions: whether a worker backs off, and how many tasks fit into its memory."""

from __future__ import annotations

from dataclasses import dataclass

#: MB of memory, as for workers with browsers: the runtime's share, and a reserve.
RUNTIME_MB = 150
BUFFER_MB = 100

#: Number of tasks whose memory stays free for spikes.
HEAD_ROOM = 1


@dataclass(frozen=True, slots=True)
class BackOffLimits:
    """The shares in use above which a worker backs off, 1 for no limit. `duration`: for how long (seconds) at least."""

    memory: float
    cpu: float
    duration: float


@dataclass(frozen=True, slots=True)
class BackOff:
    """A back-off, or none.

    `reason`: why the worker backs off, None if it does not; `short`: which of `MEANS` are short. `until`: when the next
    decision is due. `stuck`: memory was still short at the end of a back-off, so waiting alone may never help.
    """

    reason: str | None = None
    until: float = 0.0
    stuck: bool = False
    short: tuple[str, ...] = ()


#: The resources a worker may be short of.
MEANS = ("memory", "cpu")


def govern(back_off: BackOff, memory: float, cpu: float, limits: BackOffLimits, now: float) -> BackOff:
    """Return the back-off for these shares in use. A back-off is neither ended nor prolonged before its time."""
    if back_off.reason is not None and now < back_off.until:
        return back_off
    above = {"memory": _above("Memory", memory, limits.memory), "cpu": _above("CPU", cpu, limits.cpu)}
    reasons = {what: why for what, why in above.items() if why is not None}
    if not reasons:
        return BackOff()
    stuck = "memory" in reasons and back_off.reason is not None
    return BackOff(", ".join(reasons.values()), now + limits.duration, stuck, tuple(reasons))


def _above(what: str, share: float, limit: float) -> str | None:
    return f"{what} at {share:.1%} (threshold: {limit * 100:g}%)" if share > limit and limit < 1 else None


def announcement(worker: str, before: str | None, after: str | None) -> str | None:
    """Return the log line for a back-off that begins or ends, by its reason before and after; else None."""
    if (before is None) == (after is None):
        return None
    return f"[TaskWorker] {worker} " + (f"backing off: {after}" if after else "resuming normal operation")


def limit_for(tasks: int, memory_per_task: float) -> float:
    """Return the memory limit (MB) under which a worker may run so many tasks at once."""
    return RUNTIME_MB + BUFFER_MB + (tasks + HEAD_ROOM) * memory_per_task


def tasks_that_fit(limit_mb: float, memory_per_task: float) -> int:
    """Return how many tasks of `memory_per_task` MB a worker may run at once."""
    fit = (limit_mb - RUNTIME_MB - BUFFER_MB) / memory_per_task
    return max(1, int(fit) - HEAD_ROOM)
