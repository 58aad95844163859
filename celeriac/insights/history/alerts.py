"""Alerts that fire, that may fire soon, and that are silenced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

FIRING = text("""
SELECT a.name, a.subject, a.severity, a.says, a.value, a.threshold, a.firing_since, a.last_seen_at, a.seen_by,
    silence.until AS silenced_until
FROM celeriac.alerts a CROSS JOIN LATERAL (
    SELECT max(until) AS until FROM celeriac.alert_silences s
    WHERE s.name = a.name AND s.subject IN (a.subject, '') AND s.until > statement_timestamp()) AS silence
ORDER BY a.firing_since, a.name, a.subject
""")

PENDING = text("""
SELECT name, subject, since FROM celeriac.alerts_pending p
WHERE NOT EXISTS (SELECT FROM celeriac.alerts a WHERE a.name = p.name AND a.subject = p.subject)
ORDER BY since, name, subject LIMIT :most
""")

SILENCES = text("""
SELECT name, subject, until, by, why FROM celeriac.alert_silences
WHERE until > statement_timestamp() ORDER BY until, name, subject LIMIT :most
""")

LOOKS = text("""
SELECT asked.name, extract(epoch FROM statement_timestamp() - r.ended_at)::double precision AS seconds,
    coalesce(r.unread, '{}') AS unread
FROM unnest(CAST(:names AS text[])) AS asked (name) LEFT JOIN celeriac.repairs r USING (name) ORDER BY asked.name
""")

MOST = 1_000

#: The engine's rules by damage: what stops everything, stops one kind of work, delays it, or should be checked.
DAMAGE = (
    "read_only", "disk_full", "connections_full", "slow_commits", "locked_table", "schema_behind", "schema_ahead",
    "beat_silent", "no_worker", "fails_now", "held_lock", "redis_away", "redis_full", "slow_postgres", "slow_redis",
    "idle_while_ready",
    "missed_schedule", "unfair", "stuck_outbox",
    "dead_worker", "short_of_memory", "failing_sweep", "stuck_key", "account_fails", "slow_role", "held_snapshot",
    "drains_on", "failed_rate", "lost_tickets", "flood", "long_wait", "long_running", "queue_depth", "late_finish",
    "clocks_apart", "old_worker", "skipped_instants", "dead_letters",
)  # fmt: skip


def damage(name: str, severity: str) -> int:
    """Rank an alert by damage, worst lowest: pages before warnings, the engine's before the application's."""
    place = DAMAGE.index(name) if name in DAMAGE else len(DAMAGE)
    return place + (0 if severity == "page" else 100)


@dataclass(frozen=True, slots=True)
class Look:
    """The last run of a check. `seconds`: since it ended, None before the first. `unread`: rules it could not read."""

    name: str
    seconds: float | None
    unread: list[str]


def firing(connection: Connection) -> list[dict[str, Any]]:
    """Return the alerts that fired at the last check, the worst first; `says` continues a sentence on the subject."""
    rows = [dict(row) for row in connection.execute(FIRING).mappings()]
    return sorted(rows, key=lambda row: damage(row["name"], row["severity"]))


def pending_alerts(connection: Connection) -> list[dict[str, Any]]:
    """Return alerts whose figure is above its threshold, but not yet for as long as the rule requires."""
    return [dict(row) for row in connection.execute(PENDING, {"most": MOST}).mappings()]


def looks(connection: Connection, names: Sequence[str]) -> list[Look]:
    """Return the last run of each of these checks, by name."""
    return [Look(*row) for row in connection.execute(LOOKS, {"names": list(names)})]


def silences(connection: Connection) -> list[dict[str, Any]]:
    """Return silences: alert, subject, until when, by whom and why. An empty subject means every subject."""
    return [dict(row) for row in connection.execute(SILENCES, {"most": MOST}).mappings()]
