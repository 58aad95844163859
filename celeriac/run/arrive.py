"""Arrive: handle a message in a child process. A ticket is run; a wake-up requests a pass, or names a task to start."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.counters import COUNTERS
from celeriac.dispatch.claim import Held, Holder, fresh_token
from celeriac.dispatch.passes import Dispatcher, Own
from celeriac.roles.role import Role
from celeriac.run import shared, start
from celeriac.run.app import RunApp
from celeriac.run.places import places
from celeriac.run.shared import closed, worker_id
from celeriac.run.start import FEW
from celeriac.run.ticket import TicketRun, hand_back, look_after_stray
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database
from celeriac.store.failures import is_locked
from celeriac.store.patience import patient

logger = logging.getLogger(__name__)

#: Seconds that a pass, or a check after a ticket, waits for another transaction's lock; the next one does the rest.
PASS = 0.5

#: Seconds for which a process goes on with the tasks it finds after a ticket.
ON_FOR = 0.05


def run_ticket(app: RunApp, role_name: str, ids: list[int], token: str) -> dict[str, Any]:
    """Run a ticket and return what became of it, for the parent process. One that is gone, or that another process has
    started, runs nothing and is no error. Without a token it is a wake-up.
    """
    declared = app.roles.of_lane(role_name)
    if declared is None:
        logger.error("Got a ticket for role %r, which this worker's code does not declare", role_name)
        return {"unknown_role": role_name}
    if closed() or (places.only is not None and places.only.stopping):
        with patient(PASS), app.database.transaction() as connection:
            return {"handed_back": len(hand_back(connection, [token] if token else [], started=False))}
    until = time.monotonic() + ON_FOR
    try:
        done = _run_claimed(app, declared.role, ids, token) if token else _run_wake_up(app, declared.role, ids)
    except DBAPIError as error:
        if token or not is_locked(error):
            raise
        logger.warning(
            "%s: a wake-up was not handled because of somebody's lock; the next poll makes up for it", role_name
        )
        return {"ran": 0}
    return done | {"ran": _go_on(app, declared.role, done, until)} | COUNTERS.taken()


def _run_claimed(app: RunApp, role: Role, ids: list[int], token: str) -> dict[str, Any]:
    def ask(again: bool) -> list[Started]:
        with COUNTERS.timing("sql_seconds", "start"), app.database.statement() as connection:
            me, pid = worker_id(), os.getpid()
            return start.start(connection, role.lane, ids, token, worker_id=me, pid=pid, again=again)

    return TicketRun(app, role, token, ask).run(len(ids))


def _run_wake_up(app: RunApp, role: Role, ids: list[int]) -> dict[str, Any]:
    """Run what a wake-up requests. Once one is taken up, the role's next can be sent; one that names its task never
    stood in the way of others.
    """
    if not ids:
        app.publisher.take_up(role.lane)
    if shared.alone() and (unheard := _run_unheard(app, role))["ran"]:
        return unheard
    done = _run_few(app, role)
    return _run_pass(app, role) if done is None else done


def _run_unheard(app: RunApp, role: Role) -> dict[str, Any]:
    """Run one of the tickets whose messages are in a Redis that nobody can reach: until they run, they fill the role's
    window.
    """
    with app.database.statement() as connection:
        left = start.unheard(connection, role.lane)
    return _run_claimed(app, role, *random.choice(left)) if left else {"ran": 0}


def _go_on(app: RunApp, role: Role, done: dict[str, Any], until: float) -> int:
    """Look for more tasks, run them here and return how many ran in all: a few without a pass, or the first ticket of a
    pass.

    Small tasks take less time than their ticket's way through Redis would. After `until` no more are taken, because
    tickets of other roles wait, too: this role's wake-up or next tickets are queued behind them.
    """
    over, total = _over(done), done["ran"]
    while over and role.prompt and not closed() and _has_more(app.dispatcher, role):
        if time.monotonic() > until or not app.publisher.lets_go_on:
            _dispatch(app, role, lines_up=over <= FEW and total > done["ran"])
            break
        more = _run_more(app, role, few=over <= FEW)
        over, total = _over(more), total + more["ran"]
    return total


def _over(done: dict[str, Any]) -> int:
    """Return how many of a ticket's tasks are over, with those that had expired and did not run."""
    return int(done["ran"] + done.get("expired", 0))


def _run_more(app: RunApp, role: Role, *, few: bool) -> dict[str, Any]:
    """Run more tasks. Errors are only logged: the tasks concerned are settled or released."""
    with _excused(role):
        done = _run_few(app, role) if few else None
        return _run_pass(app, role) if done is None else done
    return {"ran": 0}


def _has_more(dispatcher: Dispatcher, role: Role) -> bool:
    """Return whether there is work and room. Errors are only logged:
    the tasks are settled, and the next poll checks again.
    """
    with _excused(role):
        return dispatcher.has_work_and_room(role)
    return False


def _dispatch(app: RunApp, role: Role, *, lines_up: bool) -> None:
    with _excused(role):
        if lines_up:
            app.publisher.kick(role.lane, role.queue)
        elif not shared.alone():
            app.dispatcher.dispatch_if_due(role, is_due=True)


@contextmanager
def _excused(role: Role) -> Iterator[None]:
    try:
        with patient(PASS):
            yield
    except DBAPIError as error:
        logger.warning("%s: the check after a ticket failed: %s", role.name, error)


def _run_few(app: RunApp, role: Role) -> dict[str, Any] | None:
    """Run all that is ready, if that needs no pass; None if it does."""
    most = start.most_without_pass(role)
    if not most or not role.enabled() or not app.publisher.lets_go_on:
        return None
    token = fresh_token()
    needs_pass = False

    def ask(again: bool) -> list[Started]:
        nonlocal needs_pass
        if again:
            return _started_before(app.database, role, token)
        if ticket.limits.tokens is not None:  # a pass takes them
            needs_pass = True
            return []
        with COUNTERS.timing("sql_seconds", "start"), app.database.statement() as connection:
            few = start.start_few(connection, role.lane, most, token, worker_id=worker_id(), pid=os.getpid())
        needs_pass = few is None
        return few or []

    ticket = TicketRun(app, role, token, ask)
    done = ticket.run()
    return None if needs_pass else done


def _run_pass(app: RunApp, role: Role) -> dict[str, Any]:
    """Run the requested pass; the first of its tickets stays in this process, started as it was claimed."""

    def read(connection: Connection, ticket: Held) -> list[Started]:
        return start.own(connection, role.lane, ticket.ids, ticket.token)

    is_alone = shared.alone() or not app.publisher.is_open  # Redis took no message when the pass was requested
    own = Own(Holder(worker_id(), os.getpid()), fresh_token(), read, is_whole=is_alone, is_single=is_alone)

    def ask(again: bool) -> list[Started]:
        if again:
            return _started_before(app.database, role, own.token)
        with patient(PASS):
            done = app.dispatcher.claim_and_start(role, own)
        app.dispatcher.publish(done.tickets[1:])
        if done.tickets:
            _dispatch_what_came(app, role)
        return list(done.started)

    return TicketRun(app, role, own.token, ask).run()


def _dispatch_what_came(app: RunApp, role: Role) -> None:
    """Dispatch once more after a pass, before its first ticket runs: a dispatcher that found the role locked relies on
    this, and no free slot has to wait for that ticket to end.

    A role with a rate limit gets a pass when the rate allows the next task: what this ticket takes of the rate is not
    counted yet.
    """
    with _excused(role):
        if not shared.alone() and app.limited.of(role.name).rate_limit is None:
            app.dispatcher.dispatch_if_due(role)


def _started_before(database: Database, role: Role, token: str) -> list[Started]:
    """Return the tasks that an earlier statement, whose answer was lost, has started under this token. If there are
    none, it may still commit: then its ticket is handed back as soon as it appears. Other tickets of its pass are left
    to the sweep `lost_tickets`.
    """
    with database.statement() as connection:
        mine = start.start(connection, role.lane, [], token, worker_id=worker_id(), pid=os.getpid(), again=True)
    if not mine:
        look_after_stray(database, token, role.stale_after)
    return mine
