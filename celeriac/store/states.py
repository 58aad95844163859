"""The life of a task, the names other systems give its stages, and when a worker or a beat counts as gone."""

from __future__ import annotations

from typing import Final

PENDING: Final = "pending"
CLAIMED: Final = "claimed"
RUNNING: Final = "running"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"

ALL: Final = (PENDING, CLAIMED, RUNNING, COMPLETED, FAILED, CANCELLED)
UNFINISHED: Final = (PENDING, CLAIMED, RUNNING)
FINISHED: Final = (COMPLETED, FAILED, CANCELLED)

#: Why a pending task is not ready: its time has not come, another task holds its lock key, its account is paused, or
#: members of a group are unfinished.
WAITS_FOR_TIME: Final = "time"
WAITS_FOR_LOCK: Final = "lock"
WAITS_FOR_ACCOUNT: Final = "account"
WAITS_FOR_MEMBERS: Final = "members"

#: Seconds without a heartbeat after which a worker is gone (`celeriac.is_heard` says the same in SQL), and seconds
#: without a tick after which a beat is.
GONE: Final = 120.0
NO_TICK: Final = 60.0

#: Number of a schedule's last ticks that are kept, however old, and shown as a strip.
STRIP: Final = 60

#: Celery's state for each of ours; `scheduled_for` in the future and a retry behind it is Celery's RETRY.
CELERY: Final = {
    PENDING: "PENDING",
    CLAIMED: "PENDING",
    RUNNING: "STARTED",
    COMPLETED: "SUCCESS",
    FAILED: "FAILURE",
    CANCELLED: "REVOKED",
}

#: The key in a completed task's progress for a custom state that its handler left for good (Celery's `Ignore`).
STAYS: Final = "stays"

#: The moves an operator may make, and the states in which each is allowed.
MOVES: Final = {
    "retry": (FAILED, CANCELLED), "cancel": UNFINISHED, "prioritise": UNFINISHED, "hasten": (PENDING,),
    "edit": (PENDING,), "move": (PENDING,),
}  # fmt: skip

_WHY_NOT: Final = {
    "retry": "only what failed or was cancelled can be retried",
    "cancel": "it is over",
    "prioritise": "it is over, so its priority no longer matters",
    "hasten": "only what waits for its time can be due now",
    "edit": "only what waits can be given other arguments",
    "move": "only what waits can be given another role",
}


def why_not(move: str, status: str) -> str | None:
    """Return why this move is not allowed in this status; None if it is."""
    return None if status in MOVES[move] else f"the task is {status}: {_WHY_NOT[move]}"


def move_to(status: str) -> str | None:
    """Return the move that brings a task to this status, if anybody but its worker can."""
    return {PENDING: "retry", FAILED: "cancel", CANCELLED: "cancel"}.get(status)


#: The crawl jobs' words, which have none for a claimed or a cancelled task.
CRAWLS: Final = {
    "queued": (PENDING, CLAIMED),
    "crawling": (RUNNING,),
    "success": (COMPLETED,),
    "failed": (FAILED, CANCELLED),
}

#: The queue master's words.
QUEUES: Final = {
    "waiting": (PENDING,),
    "delayed": (PENDING,),
    "scheduled": (CLAIMED,),
    "active": (RUNNING,),
    "terminated": (FAILED,),
}


#: The worker tasks' word for a running task that lost its worker: no heartbeat has come for its `stale_after`.
STALE: Final = "stale"

#: Every word by which a status may be requested, and the statuses it means. `failed` has our meaning.
WORDS: Final = {**{status: (status,) for status in ALL}, **CRAWLS, **QUEUES, STALE: (RUNNING,), FAILED: (FAILED,)}


def crawl_word(status: str) -> str:
    """Return the crawl jobs' word for a status."""
    return next(word for word, statuses in CRAWLS.items() if status in statuses)


def statuses_of(word: str) -> tuple[str, ...]:
    """Return the statuses a word means, ours or another system's; none if nobody uses it."""
    return WORDS.get(word, ())
