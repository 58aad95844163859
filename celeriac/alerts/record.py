"""Firing alerts in SQL: a row while one fires, and a row for each channel until its message is sent."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, text

from celeriac.alerts.rules import Above
from celeriac.store.connections import Database
from celeriac.store.plans import NOT_FLUSHED, with_next

# The lock of a check, of which one runs at a time; a process that finds it locked leaves the check to the other.
LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('celeriac alerts', 0))")

# INVARIANT: a rule that was not judged, being unreadable or another application's, keeps its state.
FORGET = text("""
DELETE FROM celeriac.alerts_pending p WHERE p.name = ANY (CAST(:judged AS text[])) AND NOT EXISTS (
    SELECT FROM jsonb_to_recordset(CAST(:above AS jsonb)) AS f (name text, subject text)
    WHERE f.name = p.name AND f.subject = p.subject)
""")

NOTE = text("""
INSERT INTO celeriac.alerts_pending (name, subject)
SELECT name, subject
FROM jsonb_to_recordset(CAST(:above AS jsonb)) AS f (name text, subject text, lasts double precision)
WHERE lasts > 0 ORDER BY name, subject
ON CONFLICT DO NOTHING
""")

FIRE = text("""
INSERT INTO celeriac.alerts AS a (name, subject, value, threshold, severity, says, seen_by)
SELECT f.name, f.subject, f.value, f.threshold, f.severity, f.says, :by
FROM jsonb_to_recordset(CAST(:above AS jsonb)) AS f (
    name text, subject text, value double precision, threshold double precision, severity text, lasts double precision,
    says text)
LEFT JOIN celeriac.alerts_pending p ON p.name = f.name AND p.subject = f.subject
WHERE f.lasts = 0 OR p.since <= now() - f.lasts * interval '1 second'
ORDER BY f.name, f.subject
ON CONFLICT (name, subject) DO UPDATE
SET value = excluded.value, threshold = excluded.threshold, severity = excluded.severity, says = excluded.says,
    seen_by = excluded.seen_by, last_seen_at = excluded.last_seen_at
RETURNING name, subject, firing_since = last_seen_at AS is_new
""")

# A deleted rule is not judged any more, so an alert that was not seen for a day ends as well.
END = text("""
DELETE FROM celeriac.alerts a WHERE (a.name = ANY (CAST(:judged AS text[])) AND NOT EXISTS (
        SELECT FROM jsonb_to_recordset(CAST(:above AS jsonb)) AS f (name text, subject text)
        WHERE f.name = a.name AND f.subject = a.subject))
    OR a.last_seen_at < now() - interval '1 day'
RETURNING name, subject, severity, says, value, threshold, firing_since, is_told,
    CAST(extract(epoch FROM now() - firing_since) AS double precision) AS seconds
""")

# INVARIANT: what marks an alert as sent inserts its messages. After a silence, alerts that still fire are sent.
TELL = text("""
WITH told AS (
    UPDATE celeriac.alerts a SET is_told = true
    WHERE NOT is_told AND NOT EXISTS (
        SELECT FROM celeriac.alert_silences s
        WHERE s.name = a.name AND s.subject IN (a.subject, '') AND s.until > statement_timestamp())
    RETURNING a.*
)
INSERT INTO celeriac.alert_deliveries (channel, message)
SELECT channel, jsonb_build_object('event', 'began', 'name', name, 'subject', subject, 'severity', severity,
    'says', says, 'value', value, 'threshold', threshold, 'since', firing_since)
FROM told, unnest(CAST(:channels AS text[])) AS channel ORDER BY told.name, told.subject
""")

# The end of an alert is not sent if its beginning was not.
TELL_END = text("""
INSERT INTO celeriac.alert_deliveries (channel, message)
SELECT channel, CAST(:message AS jsonb) FROM unnest(CAST(:channels AS text[])) AS channel
""")

UNSILENCE = text("DELETE FROM celeriac.alert_silences WHERE until < statement_timestamp() - interval '1 day'")


@contextmanager
def unflushed(database: Database) -> Iterator[Connection]:
    """Open a transaction that is committed even where commits wait, which may be what the alert is about. If Postgres
    crashes then, the next check writes the same again, and sends it a second time.
    """
    with database.transaction() as connection:
        with_next(connection, NOT_FLUSHED)
        yield connection


@dataclass(frozen=True, slots=True)
class EndedAlert:
    name: str
    subject: str
    seconds: float


def write(
    connection: Connection, judged: Collection[str], above: Sequence[Above], channels: Sequence[str], by: str
) -> tuple[list[Above], list[EndedAlert]]:
    """Write the results of a check, in the caller's transaction; return the alerts that began and those that ended.

    `judged`: the rules whose measures were read. `channels`: where messages go.
    """
    parameters = {"judged": list(judged), "above": json.dumps([_with_cure(one) for one in above])}
    connection.execute(FORGET, parameters)
    connection.execute(NOTE, parameters)
    over = connection.execute(END, parameters).mappings().all()
    new = {(row.name, row.subject) for row in connection.execute(FIRE, parameters | {"by": by}) if row.is_new}
    connection.execute(UNSILENCE)
    if channels:
        for row in over:
            if row["is_told"]:
                connection.execute(TELL_END, {"channels": list(channels), "message": _ended(dict(row))})
        connection.execute(TELL, {"channels": list(channels)})
    ended = [EndedAlert(row["name"], row["subject"], row["seconds"]) for row in over]
    return [one for one in above if (one.name, one.subject) in new], ended


def _with_cure(one: Above) -> dict[str, object]:
    return asdict(one) | {"says": f"{one.says}; {one.cure}" if one.cure else one.says}


def _ended(row: dict[str, object]) -> str:
    fields = {name: row[name] for name in ("name", "subject", "severity", "says", "value", "threshold", "seconds")}
    return json.dumps({"event": "ended", "since": row["firing_since"], **fields}, default=lambda at: at.isoformat())
