"""The batcher: one pass selects due rows fairly, claims them and hands back their tickets."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from celeriac.dispatch import claim, promote, select
from celeriac.dispatch.fairness import Claimant, allocate, next_cursor
from celeriac.dispatch.publish import Publisher, Ticket, rows_per_ticket, split
from celeriac.roles.role import Role
from celeriac.settle import release
from celeriac.store.connections import Database

logger = logging.getLogger(__name__)

#: How many waiting rows of an account a pass counts at first; more only where they could matter.
FIRST_LOOK = 16

#: An eager role's passes in a row. Where tasks settle as fast as they are published each makes room for another, but a
#: lifeline has heartbeats to send, and beat sweeps to run; whoever settles asks again.
PASSES = 4


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass came to. `busy`: another pass of the role was under way, and looks again when it ends."""

    tickets: Sequence[Ticket] = ()
    why_nothing: str | None = None
    busy: bool = False


class Dispatcher:
    """Runs passes and publishes what they claim. `by` names this process in the passes it leaves behind."""

    def __init__(self, database: Database, publisher: Publisher, by: str) -> None:
        self.database = database
        self.publisher = publisher
        self.by = by

    def dispatch(self, role: Role) -> int:
        """Beat's pass: one; an eager role's a few, until nothing or no room is left. Tasks published."""
        given = 0
        for _ in range(PASSES if role.eager else 1):
            ids = self.publish(self.claim(role))
            if not ids:
                break
            given += ids
        return given

    def dispatch_if_due(self, role: Role) -> int:
        """For eager roles, after an enqueue or a settle: a pass only if it would find work and room."""
        if not role.eager or not self.has_work_and_room(role):
            return 0
        return self.dispatch(role)

    def has_work_and_room(self, role: Role) -> bool:
        with self.database.statement() as connection:
            return select.work_and_room(connection, role.name, refill_below(role))

    def has_due(self, role: Role) -> bool:
        with self.database.statement() as connection:
            return promote.has_due(connection, role.name)

    def claim(self, role: Role) -> Sequence[Ticket]:
        """One pass; a second one if the first gave nothing although, once it was over, there is work and room.

        Whoever found the role busy went away trusting that pass to see its work: this look is how it does.
        """
        done = self.run_pass(role)
        if done.tickets or done.busy or not self.has_work_and_room(role):
            return done.tickets
        return self.run_pass(role).tickets

    def resume(self, role: Role, batch: int = 500) -> int:
        """Retries and snoozes that are due go on, between passes: their round has its slot from an earlier one.

        For roles that are not eager; what an eager one has due, any look dispatches. How many rows were due.
        """
        if not role.enabled() or not self.publisher.is_open:
            return 0
        with self.database.transaction() as connection:
            if not select.lock_pass(connection, role.name):
                return 0
            seen = select.survey(connection, role.name, role.queue)
            room = role.window - sum(seen.holding.values())
            if seen.paused or not seen.due or room <= 0:
                return 0
            due = promote.promote_due(connection, role.name, batch)
            token = str(uuid.uuid4())
            ids = claim.resume(connection, due.begun, room, token) if due.begun else []
        self.publish([Ticket(role.name, role.queue, [task], token) for task in ids])
        return due.count

    def publish(self, tickets: Sequence[Ticket]) -> int:
        """Publishes, or frees the rows at once if that failed. Tasks published."""
        if not tickets:
            return 0
        if self.publisher.publish(tickets):
            return sum(len(t.ids) for t in tickets)
        held = [release.Held(i, t.token) for t in tickets for i in t.ids]
        with self.database.transaction() as connection:
            release.release(
                connection,
                held,
                status="claimed",
                kind="unpublished",
                why="Redis did not take the ticket",
                by=self.by,
                loss=False,
            )
        return 0

    def run_pass(self, role: Role) -> Pass:
        """Select, allocate, claim, record: one transaction. Publishing is the caller's, after it."""
        if not role.enabled():
            return Pass(why_nothing=f"switched off by {role.enabled_by}")
        if not self.publisher.is_open:
            return Pass(why_nothing="Redis is not reachable")
        started = time.perf_counter()
        with self.database.transaction() as connection:
            if not select.lock_pass(connection, role.name):
                return Pass(busy=True, why_nothing="another pass is under way")
            return self._locked_pass(connection, role, started)

    def _locked_pass(self, connection: Connection, role: Role, started: float) -> Pass:
        seen = select.survey(connection, role.name, role.queue)
        free = min(role.batch_size, role.window - sum(seen.holding.values()), first_steps(role, seen))
        if seen.due:
            promote.promote_due(connection, role.name, max(2 * role.batch_size, 1000))
        if seen.paused or free <= 0:
            return self._nothing(connection, role, seen, [], free, started)
        claimants, given = self._decide(connection, role, seen, free)
        token = str(uuid.uuid4())
        claimed = claim.claim(connection, role.name, given, token)
        if not claimed.losses:
            return self._nothing(connection, role, seen, claimants, free, started)
        cursors = (seen.cursor, next_cursor(claimants, given, seen.cursor))
        claim.record_pass(
            connection, role.name, by=self.by, free=free, seen=claimants, given=claimed.given, cursors=cursors,
            took_ms=_milliseconds(started),
        )  # fmt: skip
        size = rows_per_ticket(role.chunk, seen.seconds_per_task, role.chunk_target, len(claimed.losses), seen.slots)
        return Pass(split(role.name, role.queue, claimed.losses, token, size))

    def _decide(
        self, connection: Connection, role: Role, seen: select.Survey, free: int
    ) -> tuple[list[Claimant], dict[str, int]]:
        """Allocates; looks deeper into accounts whose counted rows ran out, until none did."""
        depth = min(free, FIRST_LOOK)
        claimants = select.claimants(connection, role.name, seen, free, depth)
        given = allocate(claimants, free)
        while short := [c.account for c in claimants if c.waiting == depth < free and given.get(c.account) == depth]:
            depth = min(free, depth * 4)
            deeper = select.waiting(connection, role.name, short, depth)
            claimants = [_deepened(c, deeper) for c in claimants]
            given = allocate(claimants, free)
        return claimants, given

    def _nothing(
        self, connection: Connection, role: Role, seen: select.Survey, claimants: list[Claimant], free: int,
        started: float,
    ) -> Pass:  # fmt: skip
        why = self._why_nothing(connection, role, seen, claimants, free)
        claim.record_nothing(
            connection, role.name, by=self.by, free=max(free, 0), seen=claimants, cursor=seen.cursor,
            last_pass=seen.last_pass, why=why, took_ms=_milliseconds(started),
        )  # fmt: skip
        return Pass(why_nothing=why)

    def _why_nothing(
        self, connection: Connection, role: Role, seen: select.Survey, claimants: list[Claimant], free: int
    ) -> str:
        if seen.paused:
            return "the role is paused"
        if free <= 0:
            return "the window is full"
        if any(c.wants for c in claimants):
            return "all that is ready is locked by others"
        return (
            "every account with work is paused or at its cap"
            if select.has_ready(connection, role.name)
            else "nothing is ready"
        )


def refill_below(role: Role) -> int:
    """A quarter of the window has to be free before a pass pays; a small window fills slot by slot."""
    return role.window - role.window // 4


def first_steps(role: Role, seen: select.Survey) -> int:
    """A role that sizes its tickets by measure starts with a few tasks; the rest follows as they settle."""
    if role.chunk == "auto" and role.eager and seen.seconds_per_task is None:
        return max(2 * seen.slots, 8)
    return role.batch_size


def _deepened(claimant: Claimant, waiting: dict[str, int]) -> Claimant:
    found = waiting.get(claimant.account, claimant.waiting)
    return Claimant(claimant.account, found, claimant.holding, claimant.weight, claimant.cap)


def _milliseconds(since: float) -> float:
    return round((time.perf_counter() - since) * 1000, 3)
