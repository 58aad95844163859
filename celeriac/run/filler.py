"""Fill a process's free slots, by passes of its own and by tickets from Redis."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import exp

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.dispatch.claim import Held, Holder, fresh_token
from celeriac.dispatch.glance import glance
from celeriac.dispatch.passes import Own
from celeriac.roles.role import Role
from celeriac.run import descriptors, shared, start
from celeriac.run.execute import is_plain, logs_successes
from celeriac.run.flight import Ask, Flight, InFlight, SharedTicket
from celeriac.run.late import HeldUp
from celeriac.run.limited import Heeded
from celeriac.run.places import places
from celeriac.run.reporting import reporter
from celeriac.run.requests import Requests
from celeriac.run.run import Run
from celeriac.run.seen import SEEN
from celeriac.run.ticket import hand_back, look_after_stray
from celeriac.run.traces import traces
from celeriac.run.watch import LOOK_EVERY
from celeriac.settle.outcome import Started
from celeriac.store.failures import RETRY_EVERY, Away, in_a_line, is_gone, is_locked, log_error
from celeriac.store.patience import patient

logger = logging.getLogger(__name__)

#: The most tasks of a ticket. A ticket that is settled in pieces is rewritten with each piece.
PIECE = 250

#: Slots are filled once one in `SHARE` is free, or after `PATIENCE` seconds.
SHARE, PATIENCE = 8, 0.1

#: Tasks are also claimed for slots that will probably be free within this time (seconds), at the current pace; at most
#: as many as there are slots. It is a few times what a pass and a settle take, so that the next pass is over before
#: these have begun.
AHEAD = 0.08

#: The time (seconds) over which the rate of ending tasks is measured.
OF_LATE = 0.25

#: Seconds that a start and a pass wait for another transaction's lock before the next one gets its turn.
LOCKED, PASS = 0.1, 0.5

#: Seconds until another process's pass of the role has probably ended.
SOON = 0.01


class Throughput:
    """The recent rate at which tasks end, per second; `now`: any clock of seconds that never goes back."""

    def __init__(self) -> None:
        self._decayed, self._as_of = 0.0, 0.0

    def add(self, ended: int, now: float) -> None:
        self._decayed, self._as_of = self._decayed * exp((self._as_of - now) / OF_LATE) + ended, now

    def rate(self, now: float) -> float:
        return self._decayed * exp((self._as_of - now) / OF_LATE) / OF_LATE


class Filler:
    """Fills free slots: first with tickets from Redis, then by passes, which need no Redis."""

    def __init__(self, flights: InFlight) -> None:
        self.flights = flights
        self.app = flights.app
        self.woken = threading.Event()
        self.brought: deque[Ask] = deque()
        self.doubts: list[Ask] = []
        self.hot: set[str] = set()
        self.heeded: dict[str, Heeded] = {}
        self.next_look = 0.0
        self.waits_since: float | None = None
        self.turn = 0
        self.throughput = Throughput()
        self.away, self.held_up = Away(), HeldUp(flights.app.database)

    def bring(self, ask: Ask) -> None:
        self.brought.append(ask)
        self.woken.set()

    def wake(self, role: str) -> None:
        self.hot.add(role)
        self.woken.set()

    def run(self) -> None:
        while not self.flights.over.is_set():
            try:
                rest = self.attempt()
            except Exception as error:
                if is_gone(error):
                    self.away.say(error)
                else:
                    log_error(logger, error, "Slots could not be filled; it is tried again")
                rest = RETRY_EVERY
            self.woken.wait(rest)
            self.woken.clear()

    def attempt(self) -> float:
        """Fill what is free, and return how long (seconds) to wait before the next attempt."""
        for ask in list(self.doubts):
            self._begin_unless_locked(ask)
        self.flights.is_short = descriptors.has_few()
        self.flights.look_at_waiting()
        if self.flights.is_short or shared.closed():
            self._give_back()
            return LOOK_EVERY
        while self.brought and self.room() > 0:
            self.doubts.append(ask := self.brought.popleft())
            self._begin_unless_locked(ask)
        if not self._may_fill():
            return PATIENCE
        self._look()
        return self._fill()

    def room(self) -> int:
        """Return how many more tasks the process may have, counting slots that will be free in a moment. A task that
        has ended and is not settled needs no slot; there may be as many of those as there are slots.
        """
        with self.flights.lock:
            under_way, down = len(self.flights.flights), self.flights.down
        return self.flights.limit + self._ahead() - max(under_way - down, under_way - self.flights.limit)

    def _ahead(self) -> int:
        return int(min(self.throughput.rate(time.monotonic()) * AHEAD, self.flights.limit))

    def is_worth_it(self) -> bool:
        """Return whether enough tasks fit to be worth a pass."""
        return self.room() >= max(1, self.flights.limit // SHARE, self._ahead() // 2)

    def _may_fill(self) -> bool:
        if self.room() <= 0:
            return False
        now = time.monotonic()
        self.waits_since = self.waits_since or now
        if not self.is_worth_it() and now - self.waits_since < PATIENCE:
            return False
        self.waits_since = None
        return True

    def _look(self) -> None:
        """Poll for work without a wake-up: Redis is away, or the wake-up was lost."""
        with_work, now = SEEN.take(), time.monotonic()
        if not with_work and now < self.next_look:
            return
        self.next_look = now + self.app.settings.poll_interval
        roles = [role for role in self.flights.served() if self._is_ours(role) and role.lane not in self.hot]
        if not with_work and not SEEN.is_fresh():
            with self.app.database.statement() as connection:
                with_work = glance(connection, (role.lane for role in roles), 0.0).roles
        for role in roles:
            if role.lane in with_work and self.app.dispatcher.has_work_and_room(role):
                self.hot.add(role.lane)

    def _is_ours(self, role: Role) -> bool:
        """Return whether the role's passes are run here; beat runs the others and sends tickets through Redis."""
        return role.prompt or places.alone

    def _fill(self) -> float:
        roles = [role for role in self.flights.served() if self._is_ours(role) and role.lane in self.hot]
        self.turn += 1
        rest = max(0.0, self.next_look - time.monotonic())
        for role in roles[self.turn % len(roles) :] + roles[: self.turn % len(roles)] if roles else ():
            most = min(self.flights.room_for(role), PIECE)
            if most <= 0:
                rest = min(rest, PATIENCE)
                continue
            self.hot.discard(role.lane)
            began, is_busy = self._pass(role, most)
            if began or is_busy:
                self.hot.add(role.lane)
                rest = min(rest, SOON if is_busy else 0.0)
        return rest

    def _pass(self, role: Role, most: int) -> tuple[int, bool]:
        """Start all of a few tasks, or run a pass; return how many have begun if more may be ready, and whether another
        pass of the role was under way.
        """
        self._limits(role)

        def read(connection: Connection, ticket: Held) -> list[Started]:
            return start.own(connection, role.lane, ticket.ids, ticket.token)

        ask = Ask(role, fresh_token(), asked=True)
        own = Own(Holder(shared.worker_id(), os.getpid()), ask.token, read, is_whole=True)
        self.doubts.append(ask)
        ask.begin = traces.opened(self.app.database, ask.token)
        try:
            with patient(PASS):
                if (few := self._few(role, ask.token, most)) is not None:
                    self._take(ask, few)
                    return len(few) if places.alone else 0, False
                done = self.app.dispatcher.run_pass(replace(role, batch_size=min(most, role.batch_size)), own)
        except DBAPIError as error:
            if not is_locked(error):
                raise
            self.held_up.say(in_a_line(error))
            return 0, True
        self._take(ask, done.started)
        return len(done.started), done.busy

    def _few(self, role: Role, token: str, most: int) -> list[Started] | None:
        """Start all ready tasks of an idle role, usually a lone one; None: that takes a pass. A later task brings a
        wake-up of its own.
        """
        most = min(most, start.most_without_pass(role))
        if most <= 0 or len(self.flights.flights) >= start.FEW or not role.enabled():
            return None
        if self.heeded[role.lane].tokens is not None:
            return None
        me, pid = shared.worker_id(), os.getpid()
        with self.app.database.statement() as connection:
            return start.start_few(connection, role.lane, most, token, worker_id=me, pid=pid)

    def _begin_unless_locked(self, ask: Ask) -> None:
        """Begin this ticket. If somebody has locked its rows, it stays in doubt and is tried again; the others go
        on.
        """
        try:
            with patient(LOCKED):
                self._begin(ask)
        except DBAPIError as error:
            if not is_locked(error):
                raise
            self.held_up.say(in_a_line(error))

    def _begin(self, ask: Ask) -> None:
        """Start a ticket's tasks, or read which of them an earlier statement without an answer has started."""
        self._limits(ask.role)
        again, ask.asked = ask.asked, True
        if not again:
            ask.begin = traces.opened(self.app.database, ask.token)
        me, pid = shared.worker_id(), os.getpid()
        with self.app.database.statement() as connection:
            started = start.start(
                connection,
                ask.role.lane,
                ask.ids,
                ask.token,
                again=again,
                worker_id=me,
                pid=pid,
            )
        if again and not started:
            look_after_stray(self.app.database, ask.token, ask.role.stale_after)
        self._take(ask, started)

    def _take(self, ask: Ask, started: Sequence[Started]) -> None:
        """Take over these tasks. From here on each of them is settled or released, whatever happens."""
        limits = self.heeded[ask.role.lane]
        task, role = self.app.tasks[ask.role.name], limits.role
        on_loop = self.flights.shares_loop(ask.role.name)
        ticket = SharedTicket(
            role, ask, reporter(self.app, role), is_plain(task), Requests(self.app), task, self.app.execute,
            keeps=not task.ignore_result, logs=logs_successes(), left=len(started),
        )  # fmt: skip
        flights = [Flight(Run(row, role, self.app.database), ticket) for row in started]
        for flight in flights:
            flight.run.on_loop = on_loop
        with self.flights.lock:
            self.flights.flights.update((f.run.task.id, f) for f in flights)
        self.doubts.remove(ask)
        try:
            if ticket.reporter is not None:
                ticket.reporter.received(started)
            begin = self._those_that_begin(limits, flights)
        except Exception as error:
            log_error(logger, error, "A ticket of %s could not begin: it is handed back", role.name)
            begin = []
        begins = {f.run.task.id for f in begin}
        rest = [f for f in flights if f.run.task.id not in begins]
        for flight in rest:
            if flight.run.task.expired:
                flight.run.expire()
                ticket.expired += 1
            flight.why_back = not flight.run.task.expired
        if rest:
            self.flights.land(rest)
        if begin:
            self.flights.launch(begin)
        if not started and ask.ended:
            ask.ended({"ran": 0, "lost": len(ask.ids)})

    def _those_that_begin(self, limits: Heeded, flights: Sequence[Flight]) -> list[Flight]:
        waiting = [f for f in flights if not f.run.task.expired]
        if limits.let_all():
            return waiting
        begin: list[Flight] = []
        while waiting and limits.lets([f.run.task for f in waiting]):
            begin.append(waiting.pop(0))
        return begin

    def _limits(self, role: Role) -> Heeded:
        """Return the role's limits, which have to be known before anything is claimed."""
        known = self.heeded.get(role.lane)
        if known is None or not known.let_all():
            settings = self.app.settings
            known = Heeded(self.app.limited, self.app.database, role, settings.time_limit_grace)
            self.heeded[role.lane] = known
        return known

    def _give_back(self) -> None:
        """Hand back tickets that came from Redis and were not started."""
        while self.brought:
            ask = self.brought[0]
            with self.app.database.transaction() as connection:
                freed = hand_back(connection, [ask.token], started=False)
            self.brought.popleft()
            if ask.ended:
                ask.ended({"handed_back": len(freed)})
