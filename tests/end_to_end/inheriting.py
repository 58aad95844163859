"""Tasks whose handlers fork while they have a session, for the tests of what a child inherits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from celeriac import Celeriac, Task

app = Celeriac("inheriting")

_WROTE = text("INSERT INTO ran (task_id, role, what) VALUES (:id, 'uses', :what)")

_OUTLIVES = text("INSERT INTO ran (role, pid, what) VALUES ('outlived', :pid, 'outlives')")


def executes(session: Session) -> None:
    session.execute(_WROTE, {"id": "child", "what": "child"})


def rolls_back(session: Session) -> None:
    session.rollback()


def closes(session: Session) -> None:
    session.close()


def commits(session: Session) -> None:
    session.commit()


def ends_the_block(session: Session) -> None:
    with session:
        raise ValueError("in the child")


def drives(session: Session) -> None:
    """It uses the driver's connection, past SQLAlchemy."""
    session.get_bind()
    with session.connection().connection.cursor() as cursor:
        cursor.execute("ROLLBACK")


WAYS: dict[str, Callable[[Session], None]] = {
    way.__name__: way for way in (executes, rolls_back, closes, commits, ends_the_block, drives)
}


@app.task(shared=False, bind=True, role="uses", max_losses=1)
def uses(self: Task[..., Any], way: str) -> str:
    """Writes before and after its child has done something to its session."""
    session = self.session
    session.execute(_WROTE, {"id": self.request.id, "what": "parent"})
    if not (pid := os.fork()):
        WAYS[way](session)
        return "child"
    os.waitpid(pid, 0)
    session.execute(_WROTE, {"id": self.request.id, "what": "parent"})
    return "parent"


@app.task(shared=False, bind=True, role="outlived", max_losses=3, stale_after=3)
def outlived(self: Task[..., Any]) -> str:
    """Is killed in its first attempt, with a row written, and leaves a child behind."""
    with app.database.statement() as connection:
        is_first = not connection.exec_driver_sql("SELECT FROM ran WHERE what = 'outlives'").all()
    self.session.execute(text("INSERT INTO once VALUES (1)"))
    if not is_first:
        return "again"
    if (child := os.fork()) == 0:
        os.setsid()
        with suppress(KeyboardInterrupt):
            time.sleep(300)
        os._exit(0)
    with app.database.statement() as connection:
        connection.execute(
            text("INSERT INTO ran (role, pid, what) VALUES ('outlived', :pid, 'outlives')"), {"pid": child}
        )
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@app.task(shared=False, role="beside", max_losses=1)
def beside() -> None:
    """Has not begun when the other is killed."""
