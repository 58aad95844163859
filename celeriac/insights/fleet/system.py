"""Workers, passes, reviews, schedules, policies and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, TextClause, text

from celeriac.errors import BadValue, Unknown
from celeriac.insights.fleet.resources import BUSY
from celeriac.insights.tasks import redaction
from celeriac.store.states import GONE

_WORKERS = f"""
SELECT w.*, extract(epoch FROM statement_timestamp() - w.last_heartbeat_at)::double precision AS heartbeat_age,
    coalesce(held.task_ids, '{{}}') AS task_ids, {BUSY} AS busy
FROM celeriac.workers w LEFT JOIN (
    SELECT worker_id, array_agg(id ORDER BY id) AS task_ids, count(*) AS tasks,
        count(DISTINCT worker_pid) AS processes
    FROM celeriac.tickets, unnest(ids) AS id
    WHERE worker_id IS NOT NULL GROUP BY worker_id
) AS held USING (worker_id)
"""

WORKERS = text(f"{_WORKERS} ORDER BY w.status, w.last_heartbeat_at DESC LIMIT :most")

WORKERS_BY_NAME = text(f"{_WORKERS} WHERE w.worker_id > :after ORDER BY w.worker_id LIMIT :most")

# BETWEEN: see `tasks.EVENTS`.
PASSES = text("""
SELECT * FROM celeriac.passes
WHERE role BETWEEN :role AND :role AND id < coalesce(CAST(:before AS bigint), 9223372036854775807)
ORDER BY role DESC, id DESC LIMIT :most
""")

PASSES_OF_ALL = text("""
SELECT * FROM celeriac.passes WHERE id < coalesce(CAST(:before AS bigint), 9223372036854775807)
ORDER BY id DESC LIMIT :most
""")

REVIEWS = text("""
SELECT * FROM celeriac.queue_states
WHERE (CAST(:role AS text) IS NULL OR role = :role) AND role > :after ORDER BY role LIMIT :most
""")

SCHEDULES = text("""
SELECT s.*, greatest(0, extract(epoch FROM statement_timestamp() - s.next_run_at))::double precision
    * CAST(s.enabled AS integer) AS late_seconds
FROM celeriac.scheduled_jobs s ORDER BY s.name LIMIT :most
""")

POLICIES = text("SELECT * FROM celeriac.account_policies WHERE account > :after ORDER BY account LIMIT :most")

POLICY = text("SELECT * FROM celeriac.account_policies WHERE account = :account")

PAUSED = text("SELECT account FROM celeriac.account_policies WHERE paused ORDER BY account LIMIT :most")

BEATS = text("SELECT * FROM celeriac.beats ORDER BY last_tick_at DESC, beat_id LIMIT :most")

UNSTARTED = text("""
SELECT coalesce(r.definition ->> 'queue', r.role, nullif(split_part(k.role, ',', 2), ''), k.role) AS queue,
    count(k.token) AS tickets, CAST(coalesce(sum(cardinality(k.ids)), 0) AS integer) AS tasks,
    min(k.claimed_at) AS oldest
FROM celeriac.roles r FULL JOIN (
    SELECT role, token, ids, claimed_at FROM celeriac.tickets WHERE worker_id IS NULL) AS k ON k.role = r.role
GROUP BY 1 ORDER BY 1
""")

AUDIT = text("""
SELECT * FROM celeriac.audit WHERE id < coalesce(CAST(:before AS bigint), 9223372036854775807)
ORDER BY id DESC LIMIT :most
""")

AUDIT_OF = text("""
SELECT * FROM celeriac.audit
WHERE kind = :kind AND target = :target AND id < coalesce(CAST(:before AS bigint), 9223372036854775807)
ORDER BY id DESC LIMIT :most
""")

MOST = 1_000


@dataclass(frozen=True, slots=True)
class UnstartedTickets:
    """A queue's tickets no worker has started, and how many tasks they cover. `oldest`: the first one's claim."""

    queue: str
    tickets: int
    tasks: int
    oldest: datetime | None


def workers(connection: Connection, *, limit: int = MOST) -> list[dict[str, Any]]:
    """Return workers that report or did lately, with the ids of their tasks, and how many slots these keep `busy`."""
    return _rows(connection, WORKERS, limit)


def all_gone(workers: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the seconds since any of these `workers` was heard, if none of them is left; None otherwise."""
    if not workers or any(row["status"] != "stopped" and row["heartbeat_age"] <= GONE for row in workers):
        return None
    return float(min(row["heartbeat_age"] for row in workers))


def workers_by_name(connection: Connection, *, limit: int = MOST, after: str = "") -> list[dict[str, Any]]:
    """Return workers by name, those after `after`: unlike the order of `workers`, reports do not change this one."""
    return _rows(connection, WORKERS_BY_NAME, limit, after=after)


def passes(
    connection: Connection, role: str | None = None, *, limit: int = 100, before: int | None = None
) -> list[dict[str, Any]]:
    """Return the last passes, of one role or of all, newest first: what each saw (`claimants`), what it gave, or why it
    gave nothing. `capped`: how many accounts got no more because their cap is used up.
    """
    statement, of = (PASSES_OF_ALL, {}) if role is None else (PASSES, {"role": role})
    rows = _rows(connection, statement, limit, before=before, **of)
    return [row | {"capped": _capped(row["claimants"], row["given"])} for row in rows]


def _capped(claimants: Sequence[Any], slots: Mapping[str, int]) -> int:
    """Count the accounts that are at their cap after the pass and still have waiting tasks."""
    return sum(
        isinstance(one, Mapping)
        and one.get("cap") is not None
        and (got := slots.get(one["account"], 0)) < one.get("waiting", 0)
        and one.get("holding", 0) + got >= one["cap"]
        for one in claimants
    )


def reviews(
    connection: Connection, role: str | None = None, *, limit: int = MOST, after: str = ""
) -> list[dict[str, Any]]:
    """Return by role what the last review wrote about its queue: the Queue Master's State Document."""
    return _rows(connection, REVIEWS, limit, role=role, after=after)


def schedules(connection: Connection, *, limit: int = MOST) -> list[dict[str, Any]]:
    """Return the schedules by name. `late_seconds`: by how long the next run is overdue, 0 if it is not."""
    return redaction.schedules(connection, _rows(connection, SCHEDULES, limit))


def account_policies(connection: Connection, *, limit: int = 100, after: str = "") -> list[dict[str, Any]]:
    """Return the accounts with a policy, by name."""
    return _rows(connection, POLICIES, limit, after=after)


def account_policy(connection: Connection, account: str) -> dict[str, Any]:
    """Return the account's policy. Raises Unknown if it has none."""
    row = connection.execute(POLICY, {"account": account}).mappings().one_or_none()
    if row is None:
        raise Unknown(f"nothing is set for the account {account!r:.100}: weight 1, no cap, not paused")
    return dict(row)


def paused_accounts(connection: Connection, *, limit: int = MOST) -> list[str]:
    """Return the paused accounts, by name."""
    return [row["account"] for row in _rows(connection, PAUSED, limit)]


def beats(connection: Connection, *, limit: int = MOST) -> list[dict[str, Any]]:
    """Return beats that tick or did lately, last to tick first. `late_by`: seconds its last tick was late."""
    return _rows(connection, BEATS, limit)


def unstarted(connection: Connection) -> list[UnstartedTickets]:
    """Return for each queue, by name, the tickets that no worker has started; most queues have none."""
    return [UnstartedTickets(*row) for row in connection.execute(UNSTARTED)]


def audit_trail(
    connection: Connection,
    *,
    kind: str | None = None,
    target: str | None = None,
    limit: int = 100,
    before: int | None = None,
) -> list[dict[str, Any]]:
    """Return the audit trail, newest first, of all targets or of one, which needs its `kind` as well."""
    if (kind is None) != (target is None):
        missing = "kind" if kind is None else "target"
        raise BadValue(f"{missing}=None: give kind and target together, or neither")
    statement = AUDIT if kind is None else AUDIT_OF
    parameters = {} if kind is None else {"kind": kind, "target": target}
    return _rows(connection, statement, limit, before=before, **parameters)


def _rows(connection: Connection, statement: TextClause, limit: int, **parameters: Any) -> list[dict[str, Any]]:
    if not 1 <= limit <= MOST + 1:  # one more than a page shows whether there is a following one
        raise BadValue(f"limit={limit}: give 1 to {MOST:,}")
    return [dict(row) for row in connection.execute(statement, parameters | {"most": limit}).mappings()]
