"""Arrive: what a message comes to in a child process. A ticket is run; a kick asks for a pass, or names a lone task."""

from __future__ import annotations

import logging
import os
from typing import Any

from sqlalchemy import Connection

from celeriac.dispatch.claim import Held, Holder, fresh_token
from celeriac.dispatch.passes import Own
from celeriac.roles.role import Role
from celeriac.run import start
from celeriac.run.app import RunApp
from celeriac.run.shared import closed, worker_id
from celeriac.run.start import FEW
from celeriac.run.ticket import TicketRun, hand_back
from celeriac.store.failures import retry_while_away
from celeriac.store.started import Started

logger = logging.getLogger(__name__)


def run_ticket(app: RunApp, role_name: str, ids: list[int], token: str) -> dict[str, Any]:
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
    return _run_claimed(app, declared.role, ids, token)


def _run_claimed(app: RunApp, role: Role, ids: list[int], token: str) -> dict[str, Any]:
    def ask(again: bool) -> list[Started]:
        with app.database.statement() as connection:
            return start.start(connection, role.name, ids, token, again=again, **_me())

    return TicketRun(app, role, token, ask).run(len(ids))


def _start_lone(app: RunApp, role: Role, ids: list[int]) -> dict[str, Any] | None:
    """Runs the task a kick names, where that needs no pass; None where it does."""
    if not ids or not role.enabled() or role.window < 4 * FEW:
        return None
    if retry_while_away(lambda: app.limited.of(role.name), "read the limits of roles").rate_limit:
        return None
    token = fresh_token()

    def ask(again: bool) -> list[Started]:
        with app.database.statement() as connection:
            return start.start_lone(connection, role.name, ids[0], token, again=again, **_me())

    done = TicketRun(app, role, token, ask).run(1)
    return None if done.get("lost") else done


def _take_kick_up(app: RunApp, role: Role) -> dict[str, Any]:
    """Runs the pass that was asked for; the first of its tickets stays here, started as it was claimed."""
    app.publisher.take_up(role.name)
    own = Own(Holder(worker_id(), os.getpid()), fresh_token(), _own)

    def ask(again: bool) -> list[Started]:
        if again and (mine := _start_again(app, role, own.token)):
            return mine
        done = app.dispatcher.claim_and_start(role, own)
        app.dispatcher.publish(done.tickets[1:])
        return list(done.started)

    return TicketRun(app, role, own.token, ask).run()


def _start_again(app: RunApp, role: Role, token: str) -> list[Started]:
    """What a pass has started whose answer was lost. Its other tickets are found as lost ones."""
    with app.database.statement() as connection:
        return start.start(connection, role.name, [], token, again=True, **_me())


def _me() -> dict[str, Any]:
    return {"worker_id": worker_id(), "pid": os.getpid()}


def _own(connection: Connection, ticket: Held) -> list[Started]:
    return start.own(connection, ticket.ids, ticket.token)
