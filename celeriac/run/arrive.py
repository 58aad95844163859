"""Arrive: what a message comes to in a child process. A ticket is run; a kick asks for a pass, or names a lone task."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from celeriac.dispatch.claim import Held, Holder, fresh_token
from celeriac.dispatch.passes import Own, Pass
from celeriac.dispatch.publish import Ticket
from celeriac.roles.role import Role
from celeriac.run import start
from celeriac.run.shared import closed, worker_id
from celeriac.run.start import FEW
from celeriac.run.ticket import TicketRun, hand_back
from celeriac.store.failures import retry_while_away
from celeriac.store.started import Started

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)


def run_ticket(app: Celeriac, role_name: str, ids: list[int], token: str) -> dict[str, Any]:
    """What became of the ticket, for Flower and logs. One that is not won returns quietly."""
    declared = app.roles.get(role_name)
    if declared is None:
        logger.error("Got a ticket for role %r, which this worker's code does not declare", role_name)
        return {"unknown_role": role_name}
    if closed():
        with app.database.transaction() as connection:
            return {"handed_back": len(hand_back(connection, [token] if token else [], started=False))}
    if not token:
        return _start_lone(app, declared.role, ids) or _take_kick_up(app, declared.role)
    return TicketRun(app, declared.role).run(ids, token)


def _start_lone(app: Celeriac, role: Role, ids: list[int]) -> dict[str, Any] | None:
    """Runs the task a kick names, where that needs no pass; None where it does."""
    if not ids or not role.enabled() or role.window < 4 * FEW:
        return None
    done = TicketRun(app, role, is_lone=True).run(ids, fresh_token())
    return None if done.get("lost") else done


def _take_kick_up(app: Celeriac, role: Role) -> dict[str, Any]:
    """Runs the pass that was asked for; the first of its tickets stays here, started as it was claimed."""
    app.publisher.take_up(role.name)
    done = _OwnPass(app, role).run()
    if not done.tickets:
        return {"claimed": 0}
    app.dispatcher.publish(done.tickets[1:])
    return TicketRun(app, role, own=done.started).run(done.tickets[0].ids, done.tickets[0].token)


class _OwnPass:
    """A pass whose first ticket this process starts. Asked again, it may have been answered on a lost connection."""

    def __init__(self, app: Celeriac, role: Role) -> None:
        self.app = app
        self.role = role
        self.own = Own(Holder(worker_id(), os.getpid()), fresh_token(), _own)
        self.asked = False

    def run(self) -> Pass:
        return retry_while_away(self._run, "run a pass")

    def _run(self) -> Pass:
        again, self.asked = self.asked, True
        if again and (mine := self._started()):
            return Pass([Ticket(self.role.name, self.role.queue, [t.id for t in mine], self.own.token)], started=mine)
        return self.app.dispatcher.claim_and_start(self.role, self.own)

    def _started(self) -> list[Started]:
        me: dict[str, Any] = {"worker_id": worker_id(), "pid": os.getpid(), "again": True}
        with self.app.database.statement() as connection:
            return start.start(connection, self.role.name, [], self.own.token, **me)


def _own(connection: Connection, ticket: Held) -> list[Started]:
    return start.own(connection, ticket.ids, ticket.token)
