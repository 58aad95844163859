"""A Hypothesis state machine: operators' calls to a running API and workers' moves in any order, each committed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from celeriac.dispatch import claim, parking, promote
from celeriac.dispatch.claim import Held, fresh_token
from celeriac.enqueue import adopted, outbox
from celeriac.enqueue.rows import NewTask
from celeriac.repair import hand_over, prune, ring
from celeriac.run import outcomes, start
from celeriac.settle import release, write
from celeriac.settle.outcome import LOST, Outcome, Started
from celeriac.store import look
from tests.faults.choices import NAMES, accounts, generating, keys, options, picks, policies, wanted
from tests.faults.lives import GENERATED, Lives
from tests.faults.operators import MATCHING, PRIORITISE, STEER_MANY, STEER_ONE, Operators, Order

#: What its message names: a role, ids, a token.
Ticket = tuple[str, Sequence[int], str]

SILENCE = "UPDATE celeriac.tickets SET heartbeat_at = now() - interval '1 hour' WHERE worker_id IS NOT NULL"


class Moves(RuleBasedStateMachine):
    """`tasks` are the ids there were, newest last; `tickets` what workers hold or believe to hold."""

    def __init__(self, lives: Lives, operators: Operators) -> None:
        super().__init__()
        self.lives, self.operators = lives, operators
        self.tasks: list[int] = []
        self.tickets: list[Ticket] = []
        self.runs: list[Started] = []
        self.put = 0
        #: What sweeps need of an app.
        self.app: Any = SimpleNamespace(
            database=lives.database, settings=SimpleNamespace(event_days=1), kick=lambda _: None
        )

    @initialize(given=st.lists(st.tuples(st.sampled_from(NAMES), keys, keys, accounts), min_size=1, max_size=4),
                running=st.booleans())  # fmt: skip
    def begin(self, given: list[tuple[str, Any, Any, str]], running: bool) -> None:
        self.lives.begin()
        self.operators.accepted.clear()
        for call in given:
            self.sql_enqueues(*call)
        if running:
            self.workers_take_what_is_ready(2)

    # -- callers and time ------------------------------------------------------------------------------------------

    @rule(tasks=st.lists(options, min_size=1, max_size=3))
    def somebody_enqueues(self, tasks: list[Mapping[str, Any]]) -> None:
        self.operators.enqueue(tasks)
        self._remember()

    @rule(role=st.sampled_from(NAMES), lock=keys, unique=keys, account=accounts)
    def sql_enqueues(self, role: str, lock: Any, unique: Any, account: str) -> None:
        call = "SELECT id FROM celeriac.enqueue(:role, lock_key => :lock, unique_key => :unique, account => :account)"
        ((task,),) = self.lives.sql(call, role=role, lock=lock, unique=unique, account=account)
        self.lives.note(by_api=False)
        self.tasks += [task] if task not in self.tasks else []

    @rule()
    def workers_look(self) -> None:
        """At what SQL's enqueues and processes that died have left."""
        with self.lives.change() as connection:
            look.look(connection)

    @rule(role=st.sampled_from(NAMES), lock=keys, unique=keys, contended=st.booleans())
    def a_follow_up_is_enqueued_or_put(self, role: str, lock: Any, unique: Any, contended: bool) -> None:
        with self.lives.change() as connection:
            task = self._new_task(role, lock, unique)
            outbox.put(connection, [task]) if contended else outbox.enqueue_or_put(connection, [task])
        self._remember()

    @rule(role=st.sampled_from(NAMES), lock=keys, unique=keys)
    def a_plain_apps_call_is_adopted_and_comes_again(self, role: str, lock: Any, unique: Any) -> None:
        task = self._new_task(role, lock, unique)
        for _ in range(2):
            with self.lives.change() as connection:
                adopted.adopt(connection, [task])
        self._remember()

    @rule()
    def the_outbox_is_admitted(self) -> None:
        outbox.Admission(self.lives.database).look()
        self.lives.note(by_api=False)
        self._remember()

    @rule(make=generating)
    def the_application_makes_some(self, make: Callable[[Operators], None]) -> None:
        make(self.operators)
        self._remember()

    @rule()
    def time_passes(self) -> None:
        self.lives.sql("UPDATE celeriac.worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'")
        with self.lives.change() as connection:
            for role in (*NAMES, *GENERATED):
                promote.promote_due(connection, role, 100)

    @rule(some=picks)
    def workers_fall_silent(self, some: Sequence[int]) -> None:
        self.lives.sql(f"{SILENCE} AND ids && CAST(:ids AS bigint[])", ids=self._picked(some))

    # -- batchers and workers --------------------------------------------------------------------------------------

    @rule(n=st.integers(1, 3), together=st.booleans())
    def passes_claim(self, n: int, together: bool) -> None:
        with self.lives.change() as connection:
            for role in (*NAMES, GENERATED[0]):
                taken = claim.claim(connection, role, {"": n, "acme": n})
                split = ([taken] if taken else []) if together else [[task] for task in taken]
                held = [Held(fresh_token(), some) for some in split]
                claim.hold(connection, role, held)
                self.tickets += [(role, ticket.ids, ticket.token) for ticket in held]

    @rule(batch=st.sampled_from([1, 500]), pause=st.sampled_from([True, False, None]))
    def passes_park_and_have_back(self, batch: int, pause: bool | None) -> None:
        """What a pass meets of accounts that are shut, perhaps since just now, and what of those that are no more."""
        if pause is not None:
            self.workers_look()
            self.operators.pause_or_resume_account("acme", pause)
        with self.lives.change() as connection:
            parking.unpark(connection, batch)
            for role in (*NAMES, GENERATED[0]):
                parking.park(connection, role, ["", "acme"], batch)

    @precondition(lambda self: self.tickets)
    @rule(some=picks, forged=st.sampled_from([None, None, None, "role", "token"]))
    def a_worker_starts(self, some: Sequence[int], forged: str | None) -> None:
        for n in some:
            role, ids, token = self.tickets[-1 - n % len(self.tickets)]
            role, token = "nonesuch" if forged == "role" else role, fresh_token() if forged == "token" else token
            with self.lives.change() as connection:
                started = start.start(connection, role, ids, token, worker_id="worker", pid=1)
            assert not (forged and started)
            self.runs += [run for run in started if not run.expired]
            with self.lives.change() as connection:
                write.settle(connection, [outcomes.expired(run) for run in started if run.expired], "worker")

    @rule(n=st.integers(1, 3))
    def workers_take_what_is_ready(self, n: int) -> None:
        self.passes_claim(n, False)
        if self.tickets:
            self.a_worker_starts(list(range(2 * n)), None)

    @precondition(lambda self: self.runs)
    @rule(some=picks, status=st.sampled_from(["completed", "failed", "pending", LOST]), keep=st.booleans(),
          unique=st.none() | keys)  # fmt: skip
    def runs_end(self, some: Sequence[int], status: str, keep: bool, unique: Any) -> None:
        """Some with a follow-up."""
        again: dict[str, Any] = {"delay": 0.0, "kind": "retry"} if status == "pending" else {}
        kept = keep or status != "completed"
        with self.lives.change() as connection:
            for run in {(run.id, run.token): run for run in (self.runs[n % len(self.runs)] for n in some)}.values():
                ended = Outcome(task=run, status=status, keep=kept, **again)
                following = {run.id: [self._new_task(run.role, None, unique)]} if unique else None
                write.settle(connection, [ended], "worker", follow_ups=following)
        self._remember()

    @precondition(lambda self: self.tickets)
    @rule(which=st.integers(0, 9), started=st.booleans(), loss=st.booleans(), whole=st.booleans())
    def a_ticket_or_worker_is_lost(self, which: int, started: bool, loss: bool, whole: bool) -> None:
        """Only a worker's loss counts against the task: what was merely claimed was nobody's fault."""
        _, ids, token = self.tickets[which % len(self.tickets)]
        with self.lives.change() as connection:
            release.release(
                connection, [token], started=started, only=None if whole else ids[:1], kind="lost", why="lost",
                by="test", loss=loss and started,
            )  # fmt: skip

    @rule()
    def sweeps_repair(self) -> None:
        self.lives.sql(SILENCE)
        with self.lives.change() as connection:
            silent = release.stale(connection, 100)
            release.release(connection, silent, started=True, kind="rescue", why="silent", by="test", loss=True)
        with self.lives.change() as connection:
            hand_over.give_heads(connection, "", 100)

    @rule()
    def the_ring_turns(self) -> None:
        """As where dead entries pile up: the next segment takes over, the sealed one is emptied and truncated."""
        with self.lives.change() as connection:
            current = connection.execute(ring.STATE).one().seg
            connection.execute(ring.SEAL, {"seg": current, "next": (current + 1) % ring.SEGMENTS})
        ring.turn(self.app)
        self.lives.note(by_api=False)
        assert self.lives.sql(f"SELECT FROM celeriac.ready_{current}") == []

    @rule()
    def what_is_over_is_pruned(self) -> None:
        over = "UPDATE celeriac.worker_tasks SET completed_at = now() - interval '1 s' WHERE completed_at IS NOT NULL"
        self.lives.sql(over)
        prune.prune_tasks(self.app.database, self.app.settings)
        self.lives.note(by_api=False)

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

    # -- after each move, and at the end ---------------------------------------------------------------------------

    @invariant()
    def each_task_is_where_it_should_be(self) -> None:
        self.lives.check()

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:
            return  # what a move has found is told first
        self.lives.judge(self.operators.accepted)
        self.the_outbox_is_admitted()
        self.time_passes()
        self.sweeps_repair()
        self.lives.end()

    def _new_task(self, role: str, lock: Any, unique: Any) -> NewTask:
        self.put += 1
        return NewTask(
            task_id=f"follow-up-{self.put}", role=role, lock_key=lock, unique_key=unique, args="[]", kwargs="{}",
            enqueued_by="worker",
        )  # fmt: skip

    def _remember(self) -> None:
        known = set(self.tasks)
        self.tasks += [
            i for (i,) in self.lives.sql("SELECT id FROM celeriac.worker_tasks ORDER BY id") if i not in known
        ]

    def _picked(self, some: Sequence[int]) -> list[int]:
        """Ids by their place among those there were, and one that no task has."""
        return [2**62 if n == 8 else self.tasks[n % len(self.tasks)] for n in some]
