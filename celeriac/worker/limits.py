"""The governor's decisions: whether a worker backs off, and how many tasks its memory has room for."""

from __future__ import annotations

from dataclasses import dataclass

#: The memory math of browser workers, in megabytes: the runtime, and what is kept free for safety.
RUNTIME_MB = 150
BUFFER_MB = 100

#: Tasks for which memory stays free, for spikes.
HEAD_ROOM = 1


@dataclass(frozen=True, slots=True)
class BackOffLimits:
    """Shares of what there is, 1 for no limit; `duration` is how long (seconds) a back-off lasts at least."""

    memory: float
    cpu: float
    duration: float


@dataclass(frozen=True, slots=True)
class BackOff:
    """`reason`: why the worker backs off, None while it does not; `short`: of what, of `MEANS`. `until`: when it looks
    again.

    `stuck`: a back-off was over and memory still short, so that waiting alone may never end it.
    """

    reason: str | None = None
    until: float = 0.0
    stuck: bool = False
    short: tuple[str, ...] = ()


#: What a worker may be short of.
MEANS = ("memory", "cpu")


def govern(back_off: BackOff, memory: float, cpu: float, limits: BackOffLimits, now: float) -> BackOff:
    """What follows from these shares in use. A back-off that has begun is not ended, nor prolonged, before its time."""
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


def announcement(worker: str, before: BackOff, after: BackOff) -> str | None:
    """The line for the log when a back-off begins or ends."""
    if (before.reason is None) == (after.reason is None):
        return None
    return f"[TaskWorker] {worker} " + (f"backing off: {after.reason}" if after.reason else "resuming normal operation")


def limit_for(tasks: int, memory_per_task: float) -> float:
    """The memory limit (MB) under which a worker may run so many tasks at once."""
    return RUNTIME_MB + BUFFER_MB + (tasks + HEAD_ROOM) * memory_per_task


def tasks_that_fit(limit_mb: float, memory_per_task: float) -> int:
    """How many tasks of so many MB a worker may run at once."""
    room = (limit_mb - RUNTIME_MB - BUFFER_MB) / memory_per_task
    return max(1, int(room) - HEAD_ROOM)
