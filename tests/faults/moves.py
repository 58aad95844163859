"""A Hypothesis state machine: operators' calls to a running API and workers' moves in any order, each committed."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from celeriac.dispatch import claim, promote
from celeriac.repair import leaderless_locks, prune
from celeriac.run import start
from celeriac.run.start import Started
from celeriac.settle import release, write
from celeriac.settle.release import Held
from celeriac.settle.write import Outcome
from tests.faults.choices import NAMES, generating, keys, options, picks, policies, wanted
from tests.faults.lives import GENERATED, Lives
from tests.faults.operators import MATCHING, PRIORITISE, STEER_MANY, STEER_ONE, Operators, Order


class Moves(RuleBasedStateMachine):
    """`tasks` are the ids there were, newest last; `tickets` what workers hold or believe to hold."""

    def __init__(self, lives: Lives, operators: Operators) -> None:
        super().__init__()
        self.lives, self.operators = lives, operators
        self.tasks: list[int] = []
        self.tickets: list[tuple[int, str]] = []
        self.runs: list[Started] = []

    @initialize(given=st.lists(st.tuples(st.sampled_from(NAMES), keys, keys), min_size=1, max_size=4),
                running=st.booleans())  # fmt: skip
    def begin(self, given: list[tuple[str, Any, Any]], running: bool) -> None:
        self.lives.begin()
        self.operators.accepted.clear()
        for role, lock, unique in given:
            self.sql_enqueues(role, lock, unique)
        if running:
            self.workers_take_what_is_ready(2)

    # -- callers and time ------------------------------------------------------------------------------------------

    @rule(tasks=st.lists(options, min_size=1, max_size=3))
    def somebody_enqueues(self, tasks: list[Mapping[str, Any]]) -> None:
        self.operators.enqueue(tasks)
        self._remember()

    @rule(role=st.sampled_from(NAMES), lock=keys, unique=keys)
    def sql_enqueues(self, role: str, lock: Any, unique: Any) -> None:
        call = "SELECT id FROM celeriac_enqueue(:role, lock_key => :lock, unique_key => :unique)"
        ((task,),) = self.lives.sql(call, role=role, lock=lock, unique=unique)
        self.tasks += [task] if task not in self.tasks else []

    @rule(make=generating)
    def the_application_makes_some(self, make: Callable[[Operators], None]) -> None:
        make(self.operators)
        self._remember()

    @rule()
    def time_passes(self) -> None:
        self.lives.sql("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'")
        with self.lives.change() as connection:
            for role in (*NAMES, *GENERATED):
                promote.promote_due(connection, role, 100)

    @rule(some=picks)
    def workers_fall_silent(self, some: Sequence[int]) -> None:
        self.lives.sql(
            "UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 hour'"
            " WHERE status = 'running' AND id = ANY(:ids)",
            ids=self._picked(some),
        )

    # -- batchers and workers --------------------------------------------------------------------------------------

    @rule(n=st.integers(1, 3))
    def passes_claim(self, n: int) -> None:
        with self.lives.change() as connection:
            for role in (*NAMES, GENERATED[0]):
                token = str(uuid.uuid4())
                taken = claim.claim(connection, role, {"": n, "acme": n}, token).losses
                self.tickets += [(i, token) for i in taken]

    @precondition(lambda self: self.tickets)
    @rule(some=picks, forged=st.sampled_from([False, False, False, True]))
    def a_worker_starts(self, some: Sequence[int], forged: bool) -> None:
        with self.lives.change() as connection:
            for n in some:
                task, token = self.tickets[-1 - n % len(self.tickets)]
                token = str(uuid.uuid4()) if forged else token
                self.runs += start.start(connection, [task], token, worker_id="worker", pid=1, timeout=None)
                start.expire(connection, [task], token, "worker")

    @rule(n=st.integers(1, 3))
    def workers_take_what_is_ready(self, n: int) -> None:
        self.passes_claim(n)
        if self.tickets:
            self.a_worker_starts(list(range(2 * n)), False)

    @precondition(lambda self: self.runs)
    @rule(some=picks, status=st.sampled_from(["completed", "failed", "pending"]), keep=st.booleans())
    def runs_end(self, some: Sequence[int], status: str, keep: bool) -> None:
        again: dict[str, Any] = {"delay": 0.0, "kind": "retry"} if status == "pending" else {}
        kept = keep or status != "completed"
        with self.lives.change() as connection:
            for run in {(run.id, run.token): run for run in (self.runs[n % len(self.runs)] for n in some)}.values():
                write.settle(connection, [Outcome(task=run, status=status, keep=kept, **again)], "worker")

    @precondition(lambda self: self.tickets)
    @rule(which=st.integers(0, 9), status=st.sampled_from(["claimed", "running"]), loss=st.booleans())
    def a_ticket_or_worker_is_lost(self, which: int, status: Any, loss: bool) -> None:
        """Only a worker's loss counts against the task: what was merely claimed was nobody's fault."""
        loss = loss and status == "running"
        held = [Held(*self.tickets[which % len(self.tickets)])]
        with self.lives.change() as connection:
            release.release(connection, held, status=status, kind="lost", why="lost", by="test", loss=loss)

    @rule()
    def sweeps_repair(self) -> None:
        self.lives.sql("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 hour' WHERE status = 'running'")
        with self.lives.change() as connection:
            held = release.stale(connection, 100)
            release.release(connection, held, status="running", kind="rescue", why="silent", by="test", loss=True)
            leaderless_locks.lead_where_nobody_can(connection, "", 100)

    @rule()
    def what_is_over_is_pruned(self) -> None:
        self.lives.sql("UPDATE worker_tasks SET completed_at = now() - interval '1 s' WHERE completed_at IS NOT NULL")
        with self.lives.change() as connection:
            prune.tasks(connection, 1, 2)

    # -- operators -------------------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 8), order=st.sampled_from(STEER_ONE))
    def steer_one(self, which: int, order: Order) -> None:
        self.operators.steer(order, self._picked([which])[0])

    @rule(which=st.integers(0, 8), order=st.sampled_from(PRIORITISE))
    def prioritise(self, which: int, order: Order) -> None:
        self.operators.steer(order, self._picked([which])[0])

    @rule(some=picks, order=st.sampled_from(STEER_MANY))
    def steer_many(self, some: Sequence[int], order: Order) -> None:
        self.operators.steer_many(order, self._picked(some))

    @rule(order=st.sampled_from(MATCHING), wanted=wanted, most=st.sampled_from([2, 1000]))
    def steer_matching(self, order: Order, wanted: Mapping[str, Any], most: int) -> None:
        self.operators.steer_matching(order, wanted, most)

    @rule(minutes=st.sampled_from([None, 10]))
    def recover_stale(self, minutes: int | None) -> None:
        self.operators.recover_stale(minutes)

    @rule(change=policies)
    def change_a_policy(self, change: Callable[[Operators], None]) -> None:
        change(self.operators)

    # -- the end ---------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:
            return  # what a move has found is told first
        self.lives.judge(self.operators.accepted)
        self.time_passes()
        self.sweeps_repair()
        self.lives.end()

    def _remember(self) -> None:
        known = set(self.tasks)
        self.tasks += [i for (i,) in self.lives.sql("SELECT id FROM worker_tasks ORDER BY id") if i not in known]

    def _picked(self, some: Sequence[int]) -> list[int]:
        """Ids by their place among those there were, and one that no task has."""
        return [2**62 if n == 8 else self.tasks[n % len(self.tasks)] for n in some]
