"""Settle: write outcomes, each if and only if its task is still held by this run's ticket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, text

from celeriac.enqueue.rows import NewTask
from celeriac.settle import release
from celeriac.settle.follow_ups import follow_up
from celeriac.settle.outcome import LOST, REPLACED, Outcome, Started
from celeriac.settle.tombstones import Tombstone, bury
from celeriac.store import look
from celeriac.store.encoding import array
from celeriac.store.prepared import Prepared
from celeriac.store.states import COMPLETED

_KEPT = """
    id, task_id, role, account, lock_key, unique_key, priority, aged, scheduled_for, expires_at, headers,
    max_retries, max_rounds, losses, timeout, parent_id, enqueued_by, created_at, progress, workflow, barrier,
    place, queue"""

_OF_ITS_ROW = (
    _KEPT.replace("id, task_id", "t.id, t.task_id")
    .replace("progress", "coalesce(m.progress, t.progress) AS progress")
    .replace("place, queue", "place, CASE WHEN m.queue IS NULL THEN t.queue ELSE nullif(m.queue, '') END AS queue")
)


def _awaited(of: str) -> str:
    """Return SQL for whether a task waits for that row's lock key: one index descent, however many wait."""
    in_order = "ORDER BY b.priority DESC, b.due_at, b.id LIMIT 1"
    return f"(SELECT true FROM celeriac.behind b WHERE b.lock_key = {of}.lock_key {in_order}) IS NOT NULL"


# `hand_on` reads the waiting entries with a newer snapshot than the statement has. Under REPEATABLE READ that can raise
# a serialization error, so it is called under READ COMMITTED only, and only if somebody waits for one of the keys.
def _free_keys(of: str) -> str:
    """Return CTEs that pass each lock key to the best waiting task, or delete the lock and leave the key in `looks`."""
    return f"""handed AS MATERIALIZED (
    SELECT h.lock_key, h.role FROM (
        SELECT array_agg(x.lock_key) AS keys, array_agg(x.id) AS heads FROM {of} x
        WHERE x.lock_key IS NOT NULL AND current_setting('transaction_isolation') = 'read committed'
            AND EXISTS (SELECT FROM {of} y WHERE y.lock_key IS NOT NULL AND {_awaited("y")})
        HAVING count(*) > 0
    ) AS keyed, LATERAL celeriac.hand_on(keyed.keys, keyed.heads) AS h
), freed AS MATERIALIZED (
    SELECT id, lock_key FROM {of} WHERE lock_key IS NOT NULL AND lock_key NOT IN (SELECT lock_key FROM handed)
), unlocked AS (
    DELETE FROM celeriac.locks
    WHERE lock_key = ANY (ARRAY(SELECT lock_key FROM freed)) AND head = ANY (ARRAY(SELECT id FROM freed))
), to_look_at AS (
    INSERT INTO celeriac.looks (lock_key)
    SELECT DISTINCT x.lock_key FROM freed x WHERE {_awaited("x")}
)"""


#: Columns beside the tasks' outcomes: the free lock keys, and the roles of the tasks that were handed one.
_KEYS = "ARRAY(SELECT lock_key FROM freed), ARRAY(SELECT DISTINCT role FROM handed)"


def _join(of: str) -> str:
    """Return a CTE that records these tasks' barriers in `joins`, for the post-commit check."""
    return f"""to_join AS (
    INSERT INTO celeriac.joins (barrier) SELECT DISTINCT barrier FROM {of} WHERE barrier IS NOT NULL
)"""


# INVARIANT of `mine`: the task is held by the ticket it was started under; anything else is refused. Whoever settles,
# cancels or releases locks the ticket's row first, then the tasks'. A task with a cancel request is not tried again: it
# is cancelled. `again` takes its rows from an array: joined with `judged`, of which the planner expects one row, each
# would scan all. The array has only arguments that the attempt changed: other values stay where they are stored.
SETTLE = text(f"""
WITH outcome AS (
    SELECT * FROM jsonb_to_recordset(CAST(:outcomes AS jsonb)) AS (
        id bigint, token uuid, status text, kind text, result jsonb, error text, delay double precision,
        at timestamptz, retry_count integer, tries integer, args jsonb, kwargs jsonb, keep boolean, is_spread boolean,
        progress jsonb, queue text)
), held AS MATERIALIZED (
    SELECT * FROM celeriac.tickets WHERE token = ANY (CAST(:tokens AS uuid[])) ORDER BY token FOR UPDATE
), mine AS MATERIALIZED (
    SELECT o.*, h.worker_id, h.worker_pid, h.claimed_at, h.started_at
    FROM held h, unnest(h.ids) AS i (id) JOIN outcome o ON o.id = i.id WHERE o.token = h.token
), judged AS MATERIALIZED (
    SELECT {_OF_ITS_ROW}, m.kind, m.result, m.error, m.retry_count, m.tries, m.keep,
        m.is_spread, m.token, coalesce(m.args, t.args) AS args, coalesce(m.kwargs, t.kwargs) AS kwargs,
        m.args AS new_args, m.kwargs AS new_kwargs, m.progress AS new_progress, m.worker_id, m.worker_pid,
        m.claimed_at, m.started_at,
        CASE WHEN m.status = 'pending' AND t.cancel_requested_at IS NOT NULL THEN 'cancelled'
            ELSE m.status END AS becomes,
        coalesce(m.at, clock_timestamp() + m.delay * interval '1 second') AS due
    FROM mine m CROSS JOIN LATERAL (SELECT * FROM celeriac.tasks WHERE id = m.id LIMIT 1 FOR UPDATE) AS t
), ended AS (
    DELETE FROM celeriac.tasks WHERE id = ANY (ARRAY(SELECT id FROM judged WHERE becomes <> 'pending'))
), kept AS (
    INSERT INTO celeriac.history ({_KEPT}, args, kwargs, status, result, error_message, retry_count, tries,
        worker_id, worker_pid, claimed_at, started_at, completed_at)
    SELECT {_KEPT}, args, kwargs, becomes, result, error, retry_count, tries,
        worker_id, worker_pid, claimed_at, started_at, clock_timestamp()
    FROM judged
    WHERE becomes <> 'pending' AND (keep OR barrier IS NOT NULL) AND kind IS DISTINCT FROM '{REPLACED}'
        AND celeriac.leaves_row(role, barrier)
), again AS (
    UPDATE celeriac.tasks t
    SET retry_count = j.retry_count, tries = j.tries, queue = j.queue, args = coalesce(j.args, t.args),
        kwargs = coalesce(j.kwargs, t.kwargs), scheduled_for = j.due, error_message = j.error,
        progress = CASE WHEN t.progress IS NOT NULL THEN coalesce(j.progress, t.progress) END,
        started_at = j.started_at, cancel_requested_at = NULL, updated_at = clock_timestamp()
    FROM unnest(ARRAY(
        SELECT (id, retry_count, tries, queue, new_args, new_kwargs, due, error, started_at, new_progress) FROM judged
        WHERE becomes = 'pending'
    )) AS j (id bigint, retry_count integer, tries integer, queue text, args jsonb, kwargs jsonb, due timestamptz,
        error text, started_at timestamptz, progress jsonb)
    WHERE t.id = j.id AND t.id = ANY (ARRAY(SELECT id FROM judged WHERE becomes = 'pending'))
), to_later AS (
    INSERT INTO celeriac.later (role, account, due_at, id, began)
    SELECT celeriac.lane(role, queue), account, due, id, retry_count > 0 OR tries = 0
    FROM judged WHERE becomes = 'pending'
), {_free_keys("judged")}, fallen AS (
    SELECT count(celeriac.fall_out_of(
        queue, id, task_id, role, account, headers, becomes, error, workflow, barrier)) AS n
    FROM judged WHERE becomes IN ('failed', 'cancelled') AND is_spread IS NOT TRUE AND headers -> 'canvas' IS NOT NULL
), ended_members AS (
    SELECT barrier FROM judged WHERE becomes <> 'pending'
), {_join("ended_members")}, done AS (
    DELETE FROM celeriac.tickets k USING held h
    WHERE k.token = ANY (CAST(:tokens AS uuid[])) AND k.token = h.token
        AND (SELECT count(*) FROM mine m WHERE m.token = h.token) = cardinality(h.ids)
), less AS (
    UPDATE celeriac.tickets k SET ids = l.ids, accounts = l.accounts, heartbeat_at = clock_timestamp()
    FROM (
        SELECT h.token, array_agg(u.id ORDER BY n) AS ids, array_agg(u.account ORDER BY n) AS accounts
        FROM held h, unnest(h.ids, h.accounts) WITH ORDINALITY AS u (id, account, n)
        WHERE NOT EXISTS (SELECT FROM mine m WHERE m.id = u.id AND m.token = h.token)
        GROUP BY h.token
    ) AS l
    WHERE k.token = ANY (CAST(:tokens AS uuid[])) AND k.token = l.token
        AND EXISTS (SELECT FROM mine m WHERE m.token = l.token)
), recorded AS (
    INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
    SELECT id, role, kind, 'running', becomes, :by, error FROM judged WHERE kind IS NOT NULL
)
SELECT jsonb_object_agg(id, becomes),
    array_agg(CAST(barrier AS text)) FILTER (WHERE becomes <> 'pending' AND barrier IS NOT NULL), {_KEYS}
FROM judged
WHERE (SELECT n FROM fallen) IS NOT NULL
""")

# The same for plain successes of one ticket, the usual case: no event, no new time, no new arguments. NULL in place of
# ids: all outcomes count. Otherwise these are the ids of those that do.
COMPLETE = text(f"""
WITH held AS MATERIALIZED (
    SELECT * FROM celeriac.tickets WHERE token = CAST(:token AS uuid) FOR UPDATE
), mine AS MATERIALIZED (
    SELECT o.id, o.result FROM held h, unnest(h.ids) AS i (id)
    JOIN unnest(CAST(:ids AS bigint[]), CAST(:results AS jsonb[])) AS o (id, result) USING (id)
), gone AS (
    DELETE FROM celeriac.tasks WHERE id = ANY (ARRAY(SELECT id FROM mine))
    RETURNING {_KEPT}, args, kwargs, retry_count, tries
), kept AS (
    INSERT INTO celeriac.history ({_KEPT}, args, kwargs, retry_count, tries, status, result,
        worker_id, worker_pid, claimed_at, started_at, completed_at)
    SELECT g.*, 'completed', m.result, h.worker_id, h.worker_pid, h.claimed_at, h.started_at, clock_timestamp()
    FROM gone g JOIN mine m ON m.id = g.id, held h WHERE :keep OR g.barrier IS NOT NULL
), {_free_keys("gone")}, {_join("gone")}, done AS (
    DELETE FROM celeriac.tickets k USING held h
    WHERE k.token = CAST(:token AS uuid) AND (SELECT count(*) FROM mine) = cardinality(h.ids)
), less AS (
    UPDATE celeriac.tickets k
    SET ids = ARRAY(SELECT i FROM unnest(h.ids) WITH ORDINALITY AS u (i, n)
            WHERE NOT EXISTS (SELECT FROM mine WHERE mine.id = i) ORDER BY n),
        accounts = ARRAY(SELECT a FROM unnest(h.ids, h.accounts) WITH ORDINALITY AS u (i, a, n)
            WHERE NOT EXISTS (SELECT FROM mine WHERE mine.id = i) ORDER BY n),
        heartbeat_at = clock_timestamp()
    FROM held h
    WHERE k.token = CAST(:token AS uuid) AND (SELECT count(*) FROM mine) BETWEEN 1 AND cardinality(h.ids) - 1
)
SELECT CASE WHEN count(*) < cardinality(CAST(:ids AS bigint[])) THEN coalesce(array_agg(id), '{{}}') END,
    array_agg(CAST(barrier AS text)) FILTER (WHERE barrier IS NOT NULL), {_KEYS}
FROM gone
""")

# Records late finishes: the run ended after its task was taken from it, and its outcome is refused. `:again`: the
# outcome may have been written before, by a statement whose answer was lost. Then it counts as late only if another
# ticket holds the task now.
REFUSED = text("""
INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
SELECT late.id, late.role, 'late_finish', t.status, t.status, :by, 'refused: the task was no longer this run''s'
FROM jsonb_to_recordset(CAST(:late AS jsonb)) AS late (id bigint, role text)
LEFT JOIN LATERAL (SELECT status, token FROM celeriac.tasks_with(ARRAY[late.id]) LIMIT 1) AS t ON true
WHERE NOT :again OR t.token IS NOT NULL
RETURNING task
""")

_COMPLETE = Prepared(COMPLETE, {"token": "text", "ids": "bigint[]", "results": "text[]", "keep": "boolean"})


@dataclass(slots=True)
class _Effects:
    """The effects of a settle: what became of each task whose outcome counts, by id;
    barriers, lock keys and roles concerned.
    """

    became: dict[int, str] = field(default_factory=dict)
    barriers: set[str] = field(default_factory=set)
    free_keys: set[str] = field(default_factory=set)
    roles: set[str] = field(default_factory=set)

    def add(
        self, became: Mapping[int, str], barriers: Iterable[str] | None, free_keys: Iterable[str], roles: Iterable[str]
    ) -> None:
        self.became.update(became)
        self.barriers.update(barriers or ())
        self.free_keys.update(free_keys)
        self.roles.update(roles)


def settle(
    connection: Connection, outcomes: Sequence[Outcome], by: str, *, again: bool = False,
    follow_ups: Mapping[int, Sequence[NewTask]] | None = None,
    tombstones: Mapping[int, Sequence[Tombstone]] | None = None, refused: list[int] | None = None,
) -> dict[int, str]:  # fmt: skip
    """Write these outcomes and return, by id, what became of each task whose outcome counts.

    Tasks that somebody else holds by now stay unchanged: an event records that, and `refused` gets their ids. `again`:
    the same was sent before, and may have been committed although no answer came. `follow_ups` and `tombstones` are by
    task id, and written if that task's outcome counts. Barriers are checked after the commit, and so are lock keys for
    which no waiting task was seen.
    """
    if not outcomes:
        return {}
    done = _Effects()
    _write(connection, outcomes, by, done)
    # A statement that waited for an UPDATE of `worker_tasks` finds its row replaced; another one sees the new row.
    if len(done.became) < len(outcomes):
        replaced = [o for o in outcomes if o.task.id not in done.became and o.status != LOST]
        _write(connection, replaced, by, done)
    if done.roles or done.free_keys or done.barriers:
        look.tell(connection, done.roles)
        look.ask(connection, done.free_keys)
        look.ask_joins(connection, done.barriers)
    settled = done.became
    if follow_ups and (new := [task for i, tasks in follow_ups.items() if i in settled for task in tasks]):
        follow_up(connection, new)
    if tombstones and (buried := [one for i, some in tombstones.items() if i in settled for one in some]):
        bury(connection, buried)
    if len(settled) == len(outcomes):
        return settled
    settled |= {o.task.id: LOST for o in outcomes if o.status == LOST and _give_up(connection, o, by)}
    if late := [o.task for o in outcomes if o.task.id not in settled]:
        late_ids = _record_late(connection, late, by, again=again)
        if refused is not None:
            refused += late_ids
    return settled


def _record_late(connection: Connection, late: Sequence[Started], by: str, *, again: bool) -> list[int]:
    """Record an event for each late finish and return the ids of those tasks. `again`: as in `settle`."""
    rows = json.dumps([{"id": task.id, "role": task.role} for task in late])
    return list(connection.execute(REFUSED, {"late": rows, "by": by, "again": again}).scalars())


def _write(connection: Connection, outcomes: Sequence[Outcome], by: str, done: _Effects) -> None:
    plain = [o for o in outcomes if o.is_plain]
    _complete(connection, plain, done)
    if len(plain) < len(outcomes) and (rest := [o for o in outcomes if not o.is_plain and o.status != LOST]):
        _settle(connection, rest, by, done)


def _give_up(connection: Connection, outcome: Outcome, by: str) -> bool:
    """Release this outcome's task as lost; return False if the ticket is not this run's any more.

    The ticket is locked first: `release` skips what somebody else, such as a heartbeat, has locked.
    """
    task = outcome.task
    if not release.hold(connection, task.id, task.token):
        return False
    release.release(
        connection, [task.token], only=[task.id], started=True, kind="lost", why=str(outcome.error), by=by,
        loss=True,
    )  # fmt: skip
    return True


def _complete(connection: Connection, outcomes: Iterable[Outcome], done: _Effects) -> None:
    tickets: dict[tuple[str, bool], dict[int, Any]] = {}
    for outcome in outcomes:
        tickets.setdefault((outcome.task.token, outcome.keep), {})[outcome.task.id] = outcome.result
    for (token, keep), ended in sorted(tickets.items()):
        results = [None if result is None else json.dumps(result) for result in ended.values()]
        wanted = {"token": token, "keep": keep, "ids": array(ended), "results": results if any(results) else None}
        ((mine, *concerned),) = _COMPLETE.rows(connection, wanted)
        done.add(dict.fromkeys(ended if mine is None else mine, COMPLETED), *concerned)


def _settle(connection: Connection, outcomes: Sequence[Outcome], by: str, done: _Effects) -> None:
    tokens = sorted({o.task.token for o in outcomes})
    rows = json.dumps([_row(o) for o in outcomes])
    became, *concerned = connection.execute(SETTLE, {"outcomes": rows, "tokens": tokens, "by": by}).one()
    done.add({int(task): becomes for task, becomes in (became or {}).items()}, *concerned)


#: The fields of an outcome that `SETTLE` gets.
_SETTLED = (
    "status", "kind", "result", "error", "delay", "at", "retry_count", "tries", "args", "kwargs", "keep", "is_spread",
    "progress", "queue",
)  # fmt: skip


def _row(outcome: Outcome) -> dict[str, Any]:
    row = {name: value for name in _SETTLED if (value := getattr(outcome, name)) is not None}
    return row | {"id": outcome.task.id, "token": outcome.task.token}
