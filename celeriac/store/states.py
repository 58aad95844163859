"""The life of a task, and the names other systems give its stages."""

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

#: Why a pending task is not ready: its time has not come, another task is the head of its lock key, or its account is
#: paused.
WAITS_FOR_TIME: Final = "time"
WAITS_FOR_LOCK: Final = "lock"
WAITS_FOR_ACCOUNT: Final = "account"
WAITS_FOR_MEMBERS: Final = "members"

#: Celery's state for each of ours; `scheduled_for` in the future and a retry behind it is Celery's RETRY.
CELERY: Final = {
    PENDING: "PENDING",
    CLAIMED: "PENDING",
    RUNNING: "STARTED",
    COMPLETED: "SUCCESS",
    FAILED: "FAILURE",
    CANCELLED: "REVOKED",
}

#: Under this a completed task's progress says that it is for good the state its handler told: Celery's `Ignore`.
STAYS: Final = "stays"

#: What an operator may do to a task, and in which states.
MOVES: Final = {
    "retry": (FAILED, CANCELLED), "cancel": UNFINISHED, "prioritise": UNFINISHED, "hasten": (PENDING,),
    "edit": (PENDING,), "move": (PENDING,),
}  # fmt: skip

_WHY_NOT: Final = {
    "retry": "only what failed or was cancelled can be retried",
    "cancel": "it is over",
    "prioritise": "it is over, so its priority says nothing any more",
    "hasten": "only what waits for its time can be due now",
    "edit": "only what waits can be given other arguments",
    "move": "only what waits can be given another role",
}


def why_not(move: str, status: str) -> str | None:
    """Why the life of a task does not allow this move now; None if it does."""
    return None if status in MOVES[move] else f"the task is {status}: {_WHY_NOT[move]}"


def move_to(status: str) -> str | None:
    """The move that brings a task to this status, if anybody but its worker can."""
    return {PENDING: "retry", FAILED: "cancel", CANCELLED: "cancel"}.get(status)


#: The crawl jobs' words, which know no claimed and no cancelled task.
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


#: The worker tasks' word for a task that lost its worker: it runs, and nobody has heard of it for its `stale_after`.
STALE: Final = "stale"

#: Every word a status may be asked for by, and the statuses it means. `failed` is ours.
WORDS: Final = {**{status: (status,) for status in ALL}, **CRAWLS, **QUEUES, STALE: (RUNNING,), FAILED: (FAILED,)}


def crawl_word(status: str) -> str:
    """The crawl jobs' word for a status."""
    return next(word for word, statuses in CRAWLS.items() if status in statuses)


def statuses_of(word: str) -> tuple[str, ...]:
    """The statuses a word means, ours or another system's; none if nobody uses it."""
    return WORDS.get(word, ())
