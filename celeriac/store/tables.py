"""The engine's tables, declared. `store/migrations` is how a database gets there; a test holds the two together.

Invariants the database itself refuses to break:
- one unfinished task per (role, unique key), one *leading* task per lock key: active tasks always lead;
- a claimed task has a token, a running one also a worker and a heartbeat, a waiting one neither;
- `waits_for` (time, lock) belongs to pending tasks only: rows that cannot run stay out of the index of those that can.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP, UUID

metadata = MetaData()

UNFINISHED = "status IN ('pending', 'claimed', 'running')"
ACTIVE = "status IN ('claimed', 'running')"
FINISHED = "status IN ('completed', 'failed', 'cancelled')"
ENDED_BADLY = "status IN ('failed', 'cancelled')"


def _time(name: str, **options: Any) -> Column[Any]:
    return Column(name, TIMESTAMP(timezone=True), **options)


def _now(name: str) -> Column[Any]:
    return _time(name, nullable=False, server_default=func.now())


worker_tasks = Table(
    "worker_tasks",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task_id", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("account", Text, nullable=False, server_default=""),
    Column("lock_key", Text),
    Column("unique_key", Text),
    Column("status", Text, nullable=False, server_default="pending"),
    Column("waits_for", Text),
    Column("priority", Integer, nullable=False, server_default="0"),
    # Points of `priority` that come of waiting, and whether more may.
    Column("aged", Integer, nullable=False, server_default="0"),
    Column("ages", Boolean, nullable=False, server_default=text("true")),
    Column("scheduled_for", TIMESTAMP(timezone=True), nullable=False, server_default=func.now()),
    _time("expires_at"),
    Column("args", JSONB, nullable=False, server_default="[]"),
    Column("kwargs", JSONB, nullable=False, server_default="{}"),
    Column("headers", JSONB),
    Column("token", UUID(as_uuid=False)),
    Column("worker_id", Text),
    Column("worker_pid", Integer),
    _time("claimed_at"),
    _time("started_at"),
    _time("deadline_at"),
    _time("last_heartbeat_at"),
    _time("cancel_requested_at"),
    _time("completed_at"),
    Column("progress", JSONB),
    Column("result", JSONB),
    Column("error_message", Text),
    Column("retry_count", Integer, nullable=False, server_default="0"),
    Column("max_retries", Integer),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("max_tries", Integer, nullable=False, server_default="1"),
    Column("losses", Integer, nullable=False, server_default="0"),
    Column("timeout", Double),
    Column("parent_id", BigInteger),
    Column("enqueued_by", Text),
    _now("created_at"),
    _now("updated_at"),
    # Postgres reads a check anew for every statement, a twentieth of an enqueue: few, and a list as one constant.
    CheckConstraint(
        "status = ANY ('{pending,claimed,running,completed,failed,cancelled}')", name="worker_tasks_status_known"
    ),
    CheckConstraint(
        "waits_for IS NULL"
        " OR status = 'pending' AND (waits_for = 'time' OR waits_for = 'lock' AND lock_key IS NOT NULL)",
        name="worker_tasks_only_pending_waits",
    ),
    CheckConstraint(
        "CASE status WHEN 'pending' THEN token IS NULL"
        " WHEN 'claimed' THEN token IS NOT NULL AND claimed_at IS NOT NULL"
        " WHEN 'running' THEN token IS NOT NULL AND claimed_at IS NOT NULL"
        " AND worker_id IS NOT NULL AND started_at IS NOT NULL AND last_heartbeat_at IS NOT NULL"
        " ELSE true END",
        name="worker_tasks_held_as_status_says",
    ),
    CheckConstraint(
        "(status = ANY ('{completed,failed,cancelled}')) = (completed_at IS NOT NULL)",
        name="worker_tasks_finished_has_time",
    ),
    CheckConstraint("retry_count >= 0 AND tries >= 0 AND losses >= 0", name="worker_tasks_counts_positive"),
    Index("worker_tasks_task_id", "task_id", unique=True),
    Index(
        "worker_tasks_ready",
        "role",
        "account",
        text("priority DESC"),
        "scheduled_for",
        "id",
        postgresql_where=text("status = 'pending' AND waits_for IS NULL"),
    ),
    Index(
        "worker_tasks_aging",
        "aged",
        "scheduled_for",
        postgresql_where=text("status = 'pending' AND waits_for IS NULL AND ages"),
    ),
    Index(
        "worker_tasks_due",
        "role",
        "scheduled_for",
        postgresql_where=text("waits_for = 'time'"),
    ),
    Index(
        "worker_tasks_behind_lock",
        "lock_key",
        text("priority DESC"),
        "scheduled_for",
        "id",
        postgresql_where=text("waits_for = 'lock'"),
    ),
    Index("worker_tasks_behind_lock_by_role", "role", "lock_key", postgresql_where=text("waits_for = 'lock'")),
    Index("worker_tasks_active", "role", "account", postgresql_where=text(ACTIVE)),
    Index(
        "worker_tasks_one_leads_lock",
        "lock_key",
        unique=True,
        postgresql_where=text(f"lock_key IS NOT NULL AND waits_for IS NULL AND {UNFINISHED}"),
    ),
    Index(
        "worker_tasks_one_unfinished",
        "role",
        "unique_key",
        unique=True,
        postgresql_where=text(f"unique_key IS NOT NULL AND {UNFINISHED}"),
    ),
    Index("worker_tasks_finished", "role", "completed_at", "id", postgresql_where=text(FINISHED)),
    # For lists, newest first; -id, as an order by id alone is also the primary key's, which passes by all the others.
    Index("worker_tasks_ended_badly", "status", "role", text("(-id)"), postgresql_where=text(ENDED_BADLY)),
    Index("worker_tasks_pending", "role", text("(-id)"), postgresql_where=text("status = 'pending'")),
    # Start and heartbeat write into the page the row lives on.
    postgresql_with={"fillfactor": "80"},
)

#: What the row itself cannot tell. No foreign key: an event outlives its task.
task_events = Table(
    "task_events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task", BigInteger, nullable=False),
    Column("role", Text, nullable=False),
    _now("at"),
    Column("kind", Text, nullable=False),
    Column("from_status", Text),
    Column("to_status", Text),
    Column("by", Text),
    Column("why", Text),
    Index("task_events_of_task", "task", "id"),
    Index("task_events_by_age", "at"),
)

roles = Table(
    "roles",
    metadata,
    Column("role", Text, primary_key=True),
    Column("definition", JSONB, nullable=False),
    Column("parameters", JSONB, nullable=False, server_default="[]"),
    Column("release", BigInteger, nullable=False, server_default="0"),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    _now("updated_at"),
)

account_policies = Table(
    "account_policies",
    metadata,
    Column("account", Text, primary_key=True),
    Column("weight", Double, nullable=False, server_default="1"),
    Column("cap", Integer),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    _now("updated_at"),
    CheckConstraint("weight BETWEEN 0.000001 AND 1000000", name="account_policies_weight_in_range"),
    CheckConstraint("cap >= 0", name="account_policies_cap_not_negative"),
)

batchers = Table(
    "batchers",
    metadata,
    Column("role", Text, primary_key=True),
    Column("cursor", Text, nullable=False, server_default=""),
    Column("last_pass", BigInteger),
    Column("seconds_per_task", Double),
    _now("updated_at"),
)

passes = Table(
    "passes",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("role", Text, nullable=False),
    _now("at"),
    _now("last_at"),
    Column("repeated", Integer, nullable=False, server_default="0"),
    Column("by", Text, nullable=False),
    Column("free", Integer, nullable=False),
    Column("claimants", JSONB, nullable=False, server_default="[]"),
    Column("given", JSONB, nullable=False, server_default="{}"),
    Column("cursor_before", Text, nullable=False, server_default=""),
    Column("cursor_after", Text, nullable=False, server_default=""),
    Column("why_nothing", Text),
    Column("took_ms", Double, nullable=False, server_default="0"),
    Index("passes_of_role", "role", "id"),
    Index("passes_by_age", "last_at"),
)

workers = Table(
    "workers",
    metadata,
    Column("worker_id", Text, primary_key=True),
    Column("hostname", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("queues", JSONB, nullable=False, server_default="[]"),
    Column("concurrency", Integer, nullable=False),
    Column("status", Text, nullable=False, server_default="active"),
    Column("resources", JSONB, nullable=False, server_default="{}"),
    _now("started_at"),
    _now("last_heartbeat_at"),
    CheckConstraint("status IN ('active', 'draining', 'stopped')", name="workers_status_known"),
)

#: What runs when. `planned_as` is the expression `next_run_at` follows, null while it is to be planned anew; `declared`
#: what the beat config says, where it says anything; `quarantined` why a row that cannot run is left alone.
scheduled_jobs = Table(
    "scheduled_jobs",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("kind", Text, nullable=False, server_default="task"),
    Column("target", Text, nullable=False),
    Column("kwargs", JSONB, nullable=False, server_default="{}"),
    Column("cron_expression", Text, nullable=False),
    Column("timezone", Text, nullable=False, server_default="UTC"),
    Column("enabled", Boolean, nullable=False, server_default=text("true")),
    Column("priority", Integer),
    Column("misfire", Text, nullable=False, server_default="once"),
    Column("misfire_grace", Double, nullable=False, server_default="60"),
    Column("overlap", Text, nullable=False, server_default="skip"),
    Column("owner", Text, nullable=False, server_default="api"),
    Column("declared", JSONB),
    Column("release", BigInteger, nullable=False, server_default="0"),
    Column("planned_as", Text),
    _now("next_run_at"),
    _time("last_run_at"),
    Column("last_task_id", Text),
    Column("last_report", JSONB),
    Column("skips", BigInteger, nullable=False, server_default="0"),
    Column("quarantined", Text),
    Column("created_by", Text),
    _now("created_at"),
    _now("updated_at"),
    UniqueConstraint("name", name="scheduled_jobs_name_unique"),
    CheckConstraint("kind IN ('task', 'pass', 'sweep')", name="scheduled_jobs_kind_known"),
    CheckConstraint("misfire IN ('skip', 'once', 'all')", name="scheduled_jobs_misfire_known"),
    CheckConstraint("misfire_grace BETWEEN 0 AND 31536000", name="scheduled_jobs_grace_up_to_a_year"),
    CheckConstraint(
        "next_run_at BETWEEN '2000-01-01 00:00:00+00' AND '9999-01-01 00:00:00+00'",
        name="scheduled_jobs_next_run_in_reach",
    ),
    CheckConstraint("overlap IN ('skip', 'allow')", name="scheduled_jobs_overlap_known"),
)

#: The beats there are: when each last ticked, and how late (seconds) what it then ran was.
beats = Table(
    "beats",
    metadata,
    Column("beat_id", Text, primary_key=True),
    Column("hostname", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    _now("started_at"),
    _now("last_tick_at"),
    Column("late_by", Double, nullable=False, server_default="0"),
)

#: What a review found in a role's tasks, when, and who looked.
queue_states = Table(
    "queue_states",
    metadata,
    Column("role", Text, primary_key=True),
    Column("state", Text, nullable=False, server_default="reviewed"),
    _now("reviewed_at"),
    Column("reviewed_by", Text, nullable=False),
    Column("found", JSONB, nullable=False, server_default="{}"),
)

#: Who may use the HTTP API: see `operate.tokens`. A name is never used again, as the audit trail knows callers by it.
api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("created_by", Text, nullable=False),
    _now("created_at"),
    _time("expires_at"),
    _time("last_used_at"),
    _time("revoked_at"),
    CheckConstraint("length(hash) = 32", name="api_tokens_hash_is_sha256"),
    CheckConstraint(
        "cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'enqueue', 'operate', 'admin']",
        name="api_tokens_scopes_known",
    ),
    Index("api_tokens_one_of_a_name", "name", unique=True),
)

#: What operators changed, by whom, and what it was before.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _now("at"),
    Column("by", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("before", JSONB),
    Column("after", JSONB),
    Column("why", Text),
    Index("audit_of_target", "kind", "target", "id"),
    Index("audit_by_age", "at"),
)

#: What fires now, since when; a row goes when its alert ends.
alerts = Table(
    "alerts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("value", Double, nullable=False),
    Column("threshold", Double, nullable=False),
    _now("firing_since"),
    _now("last_seen_at"),
)
