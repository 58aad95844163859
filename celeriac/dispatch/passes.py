"""Passes: each selects ready tasks fairly, claims them and returns their tickets. Beat calls them `batcher`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac import logged
from celeriac.counters import COUNTERS
from celeriac.dispatch import claim, decide, parking, promote, record, room, select
from celeriac.dispatch.claim import Held, Holder, fresh_token
from celeriac.dispatch.fairness import Claimant, next_cursor
from celeriac.dispatch.publish import Publisher, Ticket, rows_per_ticket, split
from celeriac.dispatch.window import may_claim, window
from celeriac.roles.role import Role
from celeriac.settle import release
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database
from celeriac.store.patience import recurring
from celeriac.store.plans import NOT_FLUSHED, in_order, with_next

logger = logging.getLogger(__name__)

#: Maximum number of accounts with ready tasks that are counted to compute one account's share of the window.
OTHERS = 16

#: Maximum number of passes that a prompt role gets in a row. If tasks settle as fast as they are published, there is
#: always room for another pass; but a lifeline has heartbeats to send, and beat has sweeps to run. The next settle
#: continues.
PASSES = 4

#: Seconds that a pass waits for the role's lock if beat alone dispatches the role, and seconds between two attempts.
WAIT = 1.0
WAIT_STEP = 0.02


@dataclass(frozen=True, slots=True)
class Own:
    """A process that keeps the first ticket of a pass: instead of being published, it is started there under `token`,
    and `read` returns its tasks.

    `is_whole`: all that the pass claims is in that ticket, so it needs no Redis.
    `is_single`: the pass claims no more tasks than one published ticket would have.
    """

    holder: Holder
    token: str
    read: Callable[[Connection, Held], Sequence[Started]]
    is_whole: bool = False
    is_single: bool = False


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of one pass. `busy`: another pass of the role was under way, and checks once more when it ends.
    `started`: the first ticket's tasks, which the caller runs. `accounts`: how many accounts got something.
    """

    tickets: Sequence[Ticket] = ()
    why_nothing: str | None = None
    busy: bool = False
    started: Sequence[Started] = ()
    accounts: int = 0


class Dispatcher:
    """Runs passes and publishes what they claim. `by` is this process's name in the records of its passes."""

    def __init__(self, database: Database, publisher: Publisher, by: str) -> None:
        self.database = database
        self.publisher = publisher
        self.by = by

    def dispatch(self, role: Role) -> int:
        """Run beat's pass and return how many tasks were published;
        a prompt role gets a few, while there is work and room.
        """
        total = 0
        for _ in range(PASSES if role.prompt else 1):
            published = self.publish(self.claim(role))
            if not published:
                break
            total += published
        return total

    def dispatch_if_due(self, role: Role, *, is_due: bool = False) -> int:
        """Run passes of a prompt role after an enqueue or a settle, as long as there is work and room, and return how
        many tasks were published. `is_due`: the caller has just checked that for the first pass.
        """
        total = 0
        for n in range(PASSES if role.prompt else 0):
            is_worth_it = (n == 0 and is_due) or self.has_work_and_room(role)
            published = self.publish(self.claim(role)) if is_worth_it else 0
            if not published:
                break
            total += published
        return total

    def has_work_and_room(self, role: Role) -> bool:
        with COUNTERS.timing("sql_seconds", "look"), self.database.statement() as connection:
            return room.work_and_room(connection, role)

    def has_due(self, role: Role) -> bool:
        with self.database.statement() as connection:
            return promote.has_due(connection, role.lane)

    def claim(self, role: Role) -> Sequence[Ticket]:
        """Run one pass and return its tickets. If it claimed nothing, and there is work and room once it is over, run a
        second: a dispatcher that found the role locked relied on this pass to see its tasks.
        """
        return self._claim(role, None).tickets

    def claim_and_start(self, role: Role, own: Own) -> Pass:
        """Run a pass as `claim` does, for a process that runs the first ticket itself."""
        return self._claim(role, own)

    def _claim(self, role: Role, own: Own | None) -> Pass:
        done = self._patient_pass(role, own)
        if done.tickets or done.busy or not self.has_work_and_room(role):
            return done
        return self.run_pass(role, own)

    def _patient_pass(self, role: Role, own: Own | None) -> Pass:
        """Run a pass. Wait up to `WAIT` seconds for another pass of the role, unless it is prompt:
        then that one checks again.
        """
        until = time.monotonic() + WAIT
        while (done := self.run_pass(role, own)).busy and not role.prompt and time.monotonic() < until:
            time.sleep(WAIT_STEP)
        return done

    def resume(self, role: Role, batch: int = 500) -> int:
        """Claim due retries and snoozes between the passes of a role that is not prompt; return how many were due.

        Such a task had its slot when its round of attempts began, so it need not wait for beat's next pass. While
        others have ready tasks, an account gets no more than its share of the window. A prompt role needs none of this:
        each poll dispatches its due tasks.
        """
        if not role.enabled() or not self.publisher.is_open:
            return 0
        with self.database.transaction() as connection:
            if not select.lock_pass(connection, role.lane):
                return 0
            seen = select.survey(connection, role.lane, role.queue)
            if (
                seen.paused
                or not seen.due
                or window(role, seen.slots, seen.seconds_per_task) <= sum(seen.holding.values())
            ):
                return 0
            due = promote.promote_due(connection, role.lane, batch, seen.cursor)
        if due.begun:
            self.publish(self._resumed(role, due.begun))
        return due.count

    def _resumed(self, role: Role, begun: Sequence[int]) -> Sequence[Ticket]:
        with self.database.transaction() as connection:
            if not select.lock_pass(connection, role.lane):
                return []
            seen = select.survey(connection, role.lane, role.queue)
            size = window(role, seen.slots, seen.seconds_per_task)
            room = seen.by_rate(size - sum(seen.holding.values()))
            if seen.paused or room <= 0:
                return []
            waiting = {c.account for c in select.accounts(connection, role.lane, seen, OTHERS, 1).open}
            share = max(1, size // max(1, len(waiting | seen.holding.keys())))
            taken = claim.resume(connection, begun, room, share, seen.holding)
            held = [Held(fresh_token(), [task]) for task in taken]
            claim.hold(connection, role.lane, held)
        return [Ticket(role.lane, role.queue, ticket.ids, ticket.token) for ticket in held]

    def publish(self, tickets: Sequence[Ticket]) -> int:
        """Publish these tickets and return how many tasks they have; if that failed, free the tasks at once. A sweep
        finds tickets that were lost on the way.
        """
        if not tickets:
            return 0
        is_taken = self.publisher.publish(tickets)
        for ticket in tickets if COUNTERS.is_on else ():
            COUNTERS.count(1, "tickets_published_total", ticket.role, "taken" if is_taken else "refused")
        if is_taken:
            return sum(len(t.ids) for t in tickets)
        try:
            self._free(tickets)
        except DBAPIError as error:
            logger.warning("Tickets that Redis did not take stay claimed until a sweep finds them: %s", error)
        return 0

    def _free(self, tickets: Sequence[Ticket]) -> None:
        with self.database.transaction() as connection:
            release.release(
                connection, [t.token for t in tickets], started=False, kind="unpublished",
                why="Redis did not take the ticket", by=self.by, loss=False,
            )  # fmt: skip

    def run_pass(self, role: Role, own: Own | None = None) -> Pass:
        """Select, allocate, claim, hold and record in one transaction. The caller publishes the tickets after it."""
        if not role.enabled():
            return Pass(why_nothing=f"switched off by {role.enabled_by}")
        if not (self.publisher.is_open or (own is not None and own.is_whole)):
            return Pass(why_nothing="Redis is not reachable")
        started = time.perf_counter()
        with recurring(), self.database.transaction() as connection:
            if select.lock_pass(connection, role.lane):
                done = self._locked_pass(connection, role, started, own)
            else:
                done = Pass(busy=True, why_nothing="another pass is under way")
        _report(role.name, done, time.perf_counter() - started)
        return done

    def _locked_pass(self, connection: Connection, role: Role, started: float, own: Own | None) -> Pass:
        seen = _seen(connection, role, own)
        free = seen.by_rate(may_claim(role, sum(seen.holding.values()), seen.slots, seen.seconds_per_task))
        if seen.resumed:
            parking.unpark(connection, decide.PARKED)
        if seen.due:
            promote.promote_due(connection, role.lane, max(2 * role.batch_size, 1000), seen.cursor)
        if seen.resumed or seen.due:
            in_order(connection)
        if seen.paused or free <= 0:
            return self._nothing(connection, role, seen, [], free, started)
        if own is not None and own.is_single:
            free = min(free, rows_per_ticket(role.chunk, seen.seconds_per_task, role.chunk_target, free, seen.slots))
        done = decide.decide(connection, role.lane, seen, free)
        if not done.taken:
            return self._nothing(connection, role, seen, done.claimants, free, started)
        claimed = claim.per_account(done.taken)
        cursors = (seen.cursor, next_cursor(done.claimants, done.shares, seen.cursor))
        record.done(
            connection, role.lane, by=self.by, free=free, seen=done.claimants, claimed=claimed,
            cursors=cursors, held=seen.held, took_ms=_milliseconds(started), resume=done.resume,
        )  # fmt: skip
        size = rows_per_ticket(role.chunk, seen.seconds_per_task, role.chunk_target, len(done.taken), seen.slots)
        held = [Held(fresh_token(), some) for some in split(done.taken, size)]
        if own is not None and own.is_whole:
            held = [Held(own.token, done.taken, own.holder)]
        elif own is not None:
            held[0] = Held(own.token, held[0].tasks, own.holder)
        claim.hold(connection, role.lane, held)
        if own is None and role.prompt:
            # A crash of Postgres may undo the pass: its tasks are ready again, its tickets start nothing, and a prompt
            # role's next poll runs another one. A start is flushed, with everything before it, so no running task is
            # lost.
            with_next(connection, NOT_FLUSHED)
        tickets = [Ticket(role.lane, role.queue, ticket.ids, ticket.token) for ticket in held]
        return Pass(tickets, started=own.read(connection, held[0]) if own else (), accounts=len(claimed))

    def _nothing(
        self, connection: Connection, role: Role, seen: select.Survey, claimants: Sequence[Claimant], free: int,
        started: float,
    ) -> Pass:  # fmt: skip
        why = self._why_nothing(connection, role, seen, claimants, free)
        record.still_held(connection, role.lane, seen.held)
        record.nothing(
            connection, role.lane, by=self.by, free=max(free, 0), seen=claimants, cursor=seen.cursor,
            last_pass=seen.last_pass, why=why, took_ms=_milliseconds(started),
        )  # fmt: skip
        return Pass(why_nothing=why)

    def _why_nothing(
        self, connection: Connection, role: Role, seen: select.Survey, claimants: Sequence[Claimant], free: int
    ) -> str:
        if seen.paused:
            return "the role is paused"
        if free <= 0:
            return "the window is full" if seen.by_rate(1) > 0 else "the rate limit is reached"
        if any(c.wants for c in claimants):
            return "all that is ready is locked by others"
        return (
            "every account with work is paused or at its cap"
            if claimants or select.has_ready(connection, role.lane) or select.has_parked(connection, role.lane)
            else "nothing is ready"
        )


def _seen(connection: Connection, role: Role, own: Own | None) -> select.Survey:
    """Return the state that the pass decides on. A process that runs it for itself is a slot, also if it is no
    worker's: a test drains the role.
    """
    seen = select.survey(connection, role.lane, role.queue)
    return seen if own is None or seen.slots else replace(seen, slots=1)


def _report(role: str, done: Pass, seconds: float) -> None:
    claimed = sum(len(ticket.ids) for ticket in done.tickets)
    COUNTERS.count(1, "pass_results_total", role, "busy" if done.busy else "claimed" if claimed else "nothing")
    COUNTERS.count(claimed, "rows_claimed_total", role)
    if not done.busy:
        COUNTERS.took(seconds, "pass_seconds", role)
    level = logging.INFO if claimed else logging.DEBUG
    if logger.isEnabledFor(level):
        came_to = f"{claimed} tasks in {len(done.tickets)} tickets" if claimed else done.why_nothing
        fields = {"role": role, "claimed": claimed, "tickets": len(done.tickets), "why_nothing": done.why_nothing}
        logger.log(level, "Pass of %s: %s", role, came_to, extra=logged.of("pass", seconds=round(seconds, 6), **fields))


def _milliseconds(since: float) -> float:
    return round((time.perf_counter() - since) * 1000, 3)
