"""The connection that is kept out of the pool, and a check that an idle one lives."""

from __future__ import annotations

import select
from typing import Any

from sqlalchemy.exc import InvalidatePoolError


class Spare:
    """The connection kept out of the pool, or none."""

    __slots__ = ("idle", "is_out")

    def __init__(self) -> None:
        self.idle: list[Any] = []
        self.is_out = False

    def take(self) -> Any:
        """Take the connection; None if another thread has it, or it is dead."""
        try:
            raw = self.idle.pop()
        except IndexError:
            return None
        try:
            refuse_dead(raw)
        except InvalidatePoolError:
            raw.close()
            return None
        self.is_out = True
        return raw


def refuse_dead(connection: Any, *_: Any) -> None:
    """Make the pool connect anew after a restart of Postgres: no answer is due, so anything to read is Postgres ending
    the connection.
    """
    if not connection.closed:
        idle = select.poll()
        idle.register(connection.fileno(), select.POLLIN)
        if not idle.poll(0):
            return
    raise InvalidatePoolError("Postgres has ended the idle connection")
