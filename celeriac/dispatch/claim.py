"""Claim: move the chosen tasks from `ready` to tickets, each ticket with a token of its own."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from celeriac.dispatch.resuming import Point, Points, behind
from celeriac.store.encoding import array, texts
from celeriac.store.plans import hashes, lookups
from celeriac.store.prepared import driver_rows

# INVARIANT of `taken`: each account's best entries by (priority, due time, id); one that somebody else has locked is
# skipped. Only lock holders are in `ready`, so no claim can meet a held lock. `point`: where the last entry of an
# account's share stood, its resume point.
_CLAIM = """
WITH taken AS MATERIALIZED (
    SELECT best.tableoid, best.ctid, best.rank, share.place, best.rank = share.n AS is_last
    FROM unnest(CAST(:accounts AS text[]), CAST(:slots AS integer[])) WITH ORDINALITY AS share (account, n, place),
    LATERAL (
        SELECT entry.tableoid, entry.ctid, row_number() OVER () AS rank FROM (
            SELECT tableoid, ctid FROM celeriac.ready WHERE role = :role AND account = share.account{behind}
            ORDER BY priority DESC, due_at, id LIMIT share.n FOR UPDATE SKIP LOCKED
        ) AS entry
    ) AS best
)
DELETE FROM celeriac.ready r USING taken
WHERE r.ctid = taken.ctid AND r.tableoid = taken.tableoid AND r.ctid = ANY (ARRAY(SELECT ctid FROM taken))
RETURNING r.id, r.account, r.losses,
    CASE WHEN taken.is_last THEN jsonb_build_array(r.priority, r.due_at, r.id) END AS point, taken.rank, taken.place
"""

CLAIM = text(_CLAIM.format(behind=""))

CLAIM_BEHIND = text(_CLAIM.format(behind=behind("share.account")))

# Claims tasks by id if they are ready and their account is neither paused nor capped; the others wait for a pass. A
# policy is fetched by its account, not joined: with old statistics the planner would read all policies.
RESUME = text("""
WITH entries AS MATERIALIZED (
    SELECT r.tableoid, r.ctid, t.account,
        row_number() OVER (PARTITION BY t.account ORDER BY r.priority DESC, r.due_at, r.id) AS place
    FROM unnest(CAST(:ids AS bigint[])) AS i (id), LATERAL (
        SELECT celeriac.lane(role, queue) AS role, account, priority, scheduled_for
        FROM celeriac.tasks WHERE id = i.id LIMIT 1) AS t, LATERAL (
        SELECT tableoid, ctid, priority, due_at, id FROM celeriac.ready
        WHERE role = t.role AND account = t.account AND priority = t.priority AND due_at = t.scheduled_for
            AND id = i.id LIMIT 1) AS r
    WHERE coalesce((
        SELECT NOT paused AND cap IS NULL FROM celeriac.account_policies WHERE account = t.account LIMIT 1), true)
), taken AS MATERIALIZED (
    SELECT r.tableoid, r.ctid FROM entries e JOIN celeriac.ready r ON r.ctid = e.ctid AND r.tableoid = e.tableoid
    WHERE e.place <= :share - coalesce((CAST(:holding AS jsonb) ->> e.account)::integer, 0)
    ORDER BY e.place LIMIT :room FOR UPDATE OF r SKIP LOCKED
)
DELETE FROM celeriac.ready r USING taken
WHERE r.ctid = taken.ctid AND r.tableoid = taken.tableoid AND r.ctid = ANY (ARRAY(SELECT ctid FROM taken))
RETURNING r.id, r.account, r.losses
""")

HOLD = text("""
INSERT INTO celeriac.tickets (token, role, ids, accounts, worker_id, worker_pid, started_at, heartbeat_at)
SELECT token, :role, ids, accounts, worker_id, worker_pid, CASE WHEN worker_id IS NOT NULL THEN clock_timestamp() END,
    CASE WHEN worker_id IS NOT NULL THEN clock_timestamp() END
FROM jsonb_to_recordset(CAST(:tickets AS jsonb)) AS ticket (
    token uuid, ids bigint[], accounts text[], worker_id text, worker_pid integer)
""")


class Taken(NamedTuple):
    """A claimed task, with the number of its losses. `point`: its entry in `ready`, if it is the last of its account's
    share.
    """

    id: int
    account: str
    losses: int
    point: Point | None = None


#: Sorts rows of `CLAIM` by their rank within the account, then by the account's place.
_TURN = itemgetter(4, 5)


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that starts a ticket as it is claimed."""

    worker_id: str
    pid: int


@dataclass(frozen=True, slots=True)
class Held:
    """A row of `tickets`. `holder` None: nobody has started it."""

    token: str
    tasks: Sequence[Taken]
    holder: Holder | None = None

    @property
    def ids(self) -> list[int]:
        return [task.id for task in self.tasks]


def claim(connection: Connection, role: str, shares: Mapping[str, int], points: Points | None = None) -> list[Taken]:
    """Claim these shares and return the tasks, accounts taking turns: the first entries of each account, or the first
    ones behind its resume point in `points`.

    Call `hold` in the same transaction. An account gets less than its share if somebody else has locked some of its
    entries.
    """
    if not shares:
        return []
    wanted: dict[str, Any] = {"role": role, "accounts": list(shares), "slots": list(shares.values())}
    with hashes(connection):
        if points is None:
            rows = driver_rows(connection.execute(CLAIM, wanted))
        else:
            rows = driver_rows(connection.execute(CLAIM_BEHIND, wanted | {"points": json.dumps(dict(points))}))
    return [Taken._make(row[:4]) for row in sorted(rows, key=_TURN)]


def reached(taken: Sequence[Taken]) -> dict[str, Point]:
    """Return the last entry of each account's share; accounts that got less than their share are absent."""
    return {task.account: task.point for task in taken if task.point}


def per_account(taken: Sequence[Taken]) -> dict[str, int]:
    """Return how many tasks each account got."""
    return dict(Counter(task.account for task in taken))


def resume(
    connection: Connection, ids: Sequence[int], room: int, share: int, holding: Mapping[str, int]
) -> list[Taken]:
    """Claim up to `room` of these tasks. With what an account is `holding` already, it gets at most `share`."""
    wanted = {"ids": list(ids), "room": room, "share": share, "holding": json.dumps(dict(holding))}
    with lookups(connection):
        return [Taken(*row) for row in connection.execute(RESUME, wanted).all()]


def hold(connection: Connection, role: str, tickets: Sequence[Held]) -> None:
    """Write the tickets for claimed tasks."""
    if tickets:
        connection.execute(HOLD, {"role": role, "tickets": json.dumps([_ticket(t) for t in tickets])})


def _ticket(held: Held) -> dict[str, Any]:
    accounts = texts(task.account for task in held.tasks)
    row: dict[str, Any] = {"token": held.token, "ids": array(held.ids), "accounts": accounts}
    return row if held.holder is None else row | {"worker_id": held.holder.worker_id, "worker_pid": held.holder.pid}


def fresh_token() -> str:
    return str(uuid.uuid4())
