"""Kills its process at a chosen boundary of the transaction that completes a store_discovery: `worker --include` it.

The state's code says which: KILL7 is the seventh of those before and after each statement, and before and after
COMMIT. Each kill is noted first, in the file named by KILLS. A task that lost its process runs unharmed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery import signals
from sqlalchemy import event
from sqlalchemy.orm import Session

from tasks.app import app

ARMED = "KILL"

#: Boundaries to pass before the fatal one; empty if this task is not to die.
_left: list[int] = []


@signals.task_prerun.connect
def arm(task: Any, kwargs: dict[str, Any], **_: Any) -> None:
    state = str(kwargs.get("state_code", ""))
    lost_before = (task.request.delivery_info or {}).get("redelivered")  # an eager call has none
    _left[:] = [int(state.removeprefix(ARMED))] if state.startswith(ARMED) and not lost_before else []


@signals.task_postrun.connect
def disarm(**_: Any) -> None:
    _left.clear()


def boundary(what: str) -> None:
    if not _left:
        return
    _left[0] -= 1
    if _left[0] == 0:
        with Path(os.environ["KILLS"]).open("a") as notes:
            notes.write(f"{what}\n")
        os.kill(os.getpid(), signal.SIGKILL)


@event.listens_for(app.database.engine, "before_cursor_execute")
def before_statement(_: Any, __: Any, statement: str, *___: Any) -> None:
    boundary(f"before {first_words(statement)}")


@event.listens_for(app.database.engine, "after_cursor_execute")
def after_statement(_: Any, __: Any, statement: str, *___: Any) -> None:
    boundary(f"after {first_words(statement)}")


@event.listens_for(app.database.engine, "commit")
def before_commit(_: Any) -> None:
    boundary("before COMMIT")


@event.listens_for(Session, "after_commit")
def after_commit(_: Any) -> None:
    boundary("after COMMIT")


def first_words(statement: str) -> str:
    return " ".join(statement.split()[:3])
