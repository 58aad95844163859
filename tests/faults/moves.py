"""A Hypothesis state machine: operators' calls and workers' moves in any order, each sequence in a transaction of its
own that is rolled back. A trigger writes down what each row did; the life of a task says what it may do.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from sqlalchemy import Connection, text

from celeriac import insights, states
from celeriac.database import Database
from celeriac.errors import Unknown
from celeriac.verbs import claim, policies, promote, prune, release, settle, start, steer
from celeriac.verbs.enqueue import NewTask, enqueue
from celeriac.verbs.release import Held
from celeriac.verbs.settle import Outcome
from celeriac.verbs.start import Started
from celeriac.verbs.steer import Steered

ROLES = ("build", "sync")

#: Survives the sequences: made once, in the test's own database.
RECORDER = """
CREATE TABLE did (n bigserial, task bigint, was text, became text);
CREATE FUNCTION write_down() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO did (task, was, became) VALUES (
        CASE WHEN TG_OP = 'DELETE' THEN OLD.id ELSE NEW.id END,
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.status END, CASE WHEN TG_OP <> 'DELETE' THEN NEW.status END);
    RETURN NULL;
END $$;
CREATE TRIGGER write_down AFTER INSERT OR UPDATE OR DELETE ON worker_tasks FOR EACH ROW EXECUTE FUNCTION write_down();
INSERT INTO roles (role, definition, parameters) VALUES
    ('build', '{"max_losses": 2, "keep": 0, "priority_range": [0, 60], "priority": 0, "max_tries": 1}', '[]'),
    ('sync', '{"max_losses": 3, "priority": 0, "max_retries": 3, "max_tries": 1}', '[]');
"""

FORBIDDEN = """
SELECT DISTINCT was, became FROM did
WHERE NOT (was IS NULL AND became = 'pending')
    AND (was, coalesce(became, 'gone')) NOT IN (SELECT * FROM unnest(CAST(:was AS text[]), CAST(:became AS text[])))
"""

#: What no sequence may leave behind once the sweeps have run: a key somebody waits for and nobody leads, or a task
#: that is due and still waits for its time.
STUCK = """
SELECT id, lock_key, waits_for FROM worker_tasks t
WHERE waits_for = 'lock' AND NOT EXISTS (
    SELECT FROM worker_tasks l WHERE l.lock_key = t.lock_key AND l.waits_for IS NULL
        AND l.status IN ('pending', 'claimed', 'running'))
    OR waits_for = 'time' AND scheduled_for <= statement_timestamp()
"""

_pairs = [(was, became) for was, some in states.NEXT.items() for became in (was, *some)]
_pairs += [(was, "gone") for was in states.MAY_GO]
ALLOWED = {"was": [was for was, _ in _pairs], "became": [became for _, became in _pairs]}

picks = st.lists(st.integers(0, 7), min_size=1, max_size=3) | st.just([0, 1, 2, 3, 4, 5, 6])
keys = st.sampled_from([None, None, "a", "b"])


class Moves(RuleBasedStateMachine):
    """`tasks` are the ids there were, newest last; `tickets` what workers hold or believe to hold."""

    sequences = 0
    changes = 0
    seen: ClassVar[set[tuple[Any, ...]]] = set()

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.connection: Connection
        self.tasks: list[int] = []
        self.tickets: list[tuple[int, str]] = []
        self.runs: list[Started] = []
        self.audited: list[tuple[str, str]] = []

    @initialize(given=st.lists(st.tuples(st.sampled_from(ROLES), keys, keys), min_size=1, max_size=4))
    def begin(self, given: list[tuple[str, Any, Any]]) -> None:
        self.connection = self.database.engine.connect()
        for role, lock, unique in given:
            self.sql_enqueues(role, lock, unique)

    # -- callers and time ------------------------------------------------------------------------------------------

    @rule(role=st.sampled_from(ROLES), lock=keys, unique=keys, delay=st.sampled_from([None, None, 60.0]),
          expires=st.sampled_from([None, None, -1.0]), account=st.sampled_from(["", "acme"]))  # fmt: skip
    def somebody_enqueues(self, role: str, lock: Any, unique: Any, delay: Any, expires: Any, account: str) -> None:
        task = NewTask(
            task_id=str(uuid.uuid4()), role=role, lock_key=lock, unique_key=unique, delay=delay, account=account,
            expires_in=expires, args=[], kwargs={},
        )  # fmt: skip
        self.tasks.append(enqueue(self.connection, [task])[0].id)

    @rule(role=st.sampled_from(ROLES), lock=keys, unique=keys)
    def sql_enqueues(self, role: str, lock: Any, unique: Any) -> None:
        call = text("SELECT id FROM celeriac_enqueue(:role, lock_key => :lock, unique_key => :unique)")
        given = {"role": role, "lock": lock, "unique": unique}
        self.tasks.append(self.connection.execute(call, given).scalar_one())

    @rule()
    def time_passes(self) -> None:
        self._sql("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'")
        for role in ROLES:
            promote.promote_due(self.connection, role, 100)

    # -- batchers and workers --------------------------------------------------------------------------------------

    @rule(n=st.integers(1, 3))
    def passes_claim(self, n: int) -> None:
        for role in ROLES:
            token = str(uuid.uuid4())
            taken = claim.claim(self.connection, role, {"": n, "acme": n}, token)
            self.tickets += [(i, token) for i in taken]

    @precondition(lambda self: self.tickets)
    @rule(some=picks, forged=st.sampled_from([False, False, False, True]))
    def a_worker_starts(self, some: Sequence[int], forged: bool) -> None:
        for n in some:
            task, token = self.tickets[-1 - n % len(self.tickets)]
            token = str(uuid.uuid4()) if forged else token
            start.expire(self.connection, [task], token, "worker")
            self.runs += start.start(self.connection, [task], token, worker_id="worker", pid=1, timeout=None)

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
        for run in {(run.id, run.token): run for run in (self.runs[n % len(self.runs)] for n in some)}.values():
            settle.settle(self.connection, [Outcome(task=run, status=status, keep=kept, **again)], "worker")

    @precondition(lambda self: self.tickets)
    @rule(which=st.integers(0, 9), status=st.sampled_from(["claimed", "running"]), loss=st.booleans())
    def a_ticket_or_worker_is_lost(self, which: int, status: Any, loss: bool) -> None:
        """Only a worker's loss counts against the task: what was merely claimed was nobody's fault."""
        loss = loss and status == "running"
        held = [Held(*self.tickets[which % len(self.tickets)])]
        release.release(self.connection, held, status=status, kind="lost", why="lost", by="test", loss=loss)

    @rule()
    def sweeps_repair(self) -> None:
        self._sql("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 hour' WHERE status = 'running'")
        held = release.stale(self.connection, 100)
        release.release(self.connection, held, status="running", kind="rescue", why="silent", by="test", loss=True)
        found, _ = promote.leaderless(self.connection, "", 100)
        promote.lead(self.connection, found)

    @rule()
    def what_is_over_is_pruned(self) -> None:
        self._sql("UPDATE worker_tasks SET completed_at = now() - interval '1 s' WHERE completed_at IS NOT NULL")
        prune.tasks(self.connection, 1, 2)

    # -- operators -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.tasks)
    @rule(some=picks)
    def retry(self, some: Sequence[int]) -> None:
        self._steer("retry", "retry", some, steer.retry)

    @precondition(lambda self: self.tasks)
    @rule(some=picks)
    def cancel(self, some: Sequence[int]) -> None:
        self._steer("cancel", "cancel", some, steer.cancel)

    @precondition(lambda self: self.tasks)
    @rule(some=picks, priority=st.sampled_from([0, 50, 70]))
    def set_priority(self, some: Sequence[int], priority: int) -> None:
        self._steer("prioritise", "priority", some, steer.set_priority, priority)

    @precondition(lambda self: self.tasks)
    @rule(some=picks, by=st.integers(1, 90))
    def boost(self, some: Sequence[int], by: int) -> None:
        self._steer("prioritise", "boost", some, steer.boost, by)

    @precondition(lambda self: self.tasks)
    @rule(some=picks, status=st.sampled_from(states.ALL))
    def set_status(self, some: Sequence[int], status: str) -> None:
        move = states.move_to(status)
        self._steer(move or "nothing", move or "nothing", some, steer.set_status, status)

    @rule(role=st.sampled_from([*ROLES, "nonesuch"]), pause=st.booleans())
    def pause_or_resume(self, role: str, pause: bool) -> None:
        try:
            (policies.pause_role if pause else policies.resume_role)(self.connection, role, by="ann")
        except Unknown:
            assert role == "nonesuch"
        else:
            self.audited.append(("pause" if pause else "resume", role))

    @rule(weight=st.floats(0.1, 10), paused=st.booleans())
    def set_account(self, weight: float, paused: bool) -> None:
        policies.set_account(self.connection, "acme", by="ann", weight=weight, paused=paused)
        self.audited.append(("policy", "acme"))

    def _steer(self, move: str, action: str, some: Sequence[int], do: Callable[..., Steered], *given: Any) -> None:
        """What is accepted is what the life of a task allows; only a key or a range may refuse more."""
        ids = [self.tasks[n % len(self.tasks)] for n in some] + [2**62] * (some[0] == 7)
        before = {i: row["status"] for i in ids if (row := insights.find(self.connection, i)) is not None}
        done = do(self.connection, ids, *given, by="ann")
        changed = [int(change.target) for change in done.changed]
        allowed = [i for i, status in before.items() if move != "nothing" and states.why_not(move, status) is None]
        assert sorted([*changed, *done.refused, *done.missing]) == sorted(set(ids))
        assert set(done.missing) == set(ids) - set(before)
        assert set(changed) <= set(allowed)
        assert not [
            why for i, why in done.refused.items() if i in allowed and "key" not in why and "priorities" not in why
        ]
        self.audited += [(action, str(i)) for i in changed]

    # -- the end ---------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self._judge()
        finally:
            self.connection.rollback()
            self.connection.close()
        Moves.sequences += 1
        if Moves.sequences % 250 == 0:
            with self.database.statement() as connection:
                connection.exec_driver_sql("VACUUM worker_tasks, did, audit, task_events, roles, account_policies")

    def _judge(self) -> None:
        assert self._sql(FORBIDDEN, **ALLOWED) == []
        assert self._sql("SELECT action, target FROM audit ORDER BY id") == self.audited
        Moves.changes += len(self.audited)
        Moves.seen |= set(self._sql("SELECT DISTINCT was, became FROM did"))
        self.time_passes()
        self.sweeps_repair()
        assert self._sql(STUCK) == []

    def _sql(self, statement: str, **given: Any) -> list[tuple[Any, ...]]:
        result = self.connection.execute(text(statement), given)
        return [tuple(row) for row in result] if result.returns_rows else []
