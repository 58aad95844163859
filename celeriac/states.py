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
ACTIVE: Final = (CLAIMED, RUNNING)
FINISHED: Final = (COMPLETED, FAILED, CANCELLED)

#: Why a pending row is not selectable: its time has not come, or another row leads its lock key.
WAITS_FOR_TIME: Final = "time"
WAITS_FOR_LOCK: Final = "lock"

#: Celery's state for each of ours; `scheduled_for` in the future and a retry behind it is Celery's RETRY.
CELERY: Final = {
    PENDING: "PENDING",
    CLAIMED: "PENDING",
    RUNNING: "STARTED",
    COMPLETED: "SUCCESS",
    FAILED: "FAILURE",
    CANCELLED: "REVOKED",
}
