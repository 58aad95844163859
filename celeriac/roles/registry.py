"""Register declared roles, for those who enqueue by name and for SQL itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from celeriac.roles.role import KEYS

#: A role's definition, its handler's parameters, and the release that declared them.
Registered = tuple[dict[str, Any], list[dict[str, Any]], int]

#: Seconds that writing a changed role waits for an open transaction that has locked its row.
PATIENCE = 0.5

# INVARIANT: an older release never overwrites a newer one's definition. A stub's release does not count: the code that
# serves the role overwrites it. An unchanged definition is neither written nor locked, because a conflict locks its row
# even if it changes nothing. A new name or lane of a role is paused if the role is paused under its other names.
REGISTER = text("""
WITH declared AS (
    SELECT * FROM jsonb_to_recordset(CAST(:roles AS jsonb))
        AS r (role text, definition jsonb, parameters jsonb, is_stub boolean, is_empty boolean)
)
INSERT INTO celeriac.roles (role, definition, parameters, release, paused, paused_until)
SELECT r.role, r.definition, r.parameters, CASE WHEN r.is_stub THEN -1 ELSE CAST(:release AS bigint) END,
    coalesce(other.paused, false), other.paused_until
FROM declared r LEFT JOIN LATERAL (
    SELECT paused, paused_until FROM celeriac.roles named
    WHERE named.paused AND (named.role IN (r.definition ->> 'lane_of', r.definition ->> 'successor') OR named.role IN (
        SELECT role FROM declared former WHERE NOT former.definition ? 'lane_of'
            AND former.definition ->> 'successor' = coalesce(r.definition ->> 'lane_of', r.role)))
    ORDER BY paused_until DESC NULLS FIRST LIMIT 1) AS other ON true
WHERE NOT EXISTS (
    SELECT FROM celeriac.roles known WHERE known.role = r.role AND (known.release > :release OR r.is_stub
        OR r.is_empty AND EXISTS (
            SELECT FROM unnest(CAST(:keys AS text[])) AS key
            WHERE known.definition ->> key IS NOT NULL AND r.definition ->> key IS NULL)
        OR (known.definition, known.parameters, known.release) = (r.definition, r.parameters, :release)))
ORDER BY r.role
ON CONFLICT (role) DO UPDATE
SET definition = excluded.definition, parameters = excluded.parameters, release = excluded.release,
    otherwise = CASE WHEN roles.definition = excluded.definition THEN roles.otherwise ELSE jsonb_build_object(
        'definition', roles.definition, 'release', roles.release, 'at', statement_timestamp()) END,
    updated_at = statement_timestamp()
WHERE roles.release <= excluded.release
    AND (roles.definition, roles.parameters, roles.release)
        IS DISTINCT FROM (excluded.definition, excluded.parameters, excluded.release)
""")

# An older release's different declaration is kept beside the one in force.
OTHERWISE = text("""
UPDATE celeriac.roles known SET otherwise =
    jsonb_build_object('definition', r.definition, 'release', CAST(:release AS bigint), 'at', statement_timestamp())
FROM jsonb_to_recordset(CAST(:roles AS jsonb)) AS r (role text, definition jsonb)
WHERE known.role = r.role AND known.release > :release AND known.definition <> r.definition
    AND known.otherwise -> 'definition' IS DISTINCT FROM r.definition
""")

LOOK_UP = text("SELECT definition, parameters, release FROM celeriac.roles WHERE role = :role")

# An UPDATE, because the row's key changes with the role's passes: an upsert could make a second row.
OBSERVE = text("""
UPDATE celeriac.batchers
SET seconds_per_task = coalesce(seconds_per_task, CAST(:seconds AS double precision)) * 0.5 + :seconds * 0.5
WHERE role = :role RETURNING true
""")

OBSERVE_FIRST = text("""
INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES (:role, :seconds) ON CONFLICT DO NOTHING
""")


def register(connection: Connection, roles: Sequence[Mapping[str, Any]], release: int) -> int:
    """Write role definitions (`role`, `definition`, `parameters`) and return how many rows changed.

    `is_stub`: this code does not serve the role and may declare less of it, so what is registered stays, whatever its
    release. `is_empty`: the handler does nothing here, so a key that it does not declare is unknown, not removed.
    """
    parameters = {"roles": json.dumps(list(roles)), "release": release}
    connection.execute(OTHERWISE, parameters)
    return connection.execute(REGISTER, parameters | {"keys": list(KEYS)}).rowcount


def look_up(connection: Connection, role: str) -> Registered | None:
    """Return a registered role's definition, its handler's parameters, and the release that declared it."""
    row = connection.execute(LOOK_UP, {"role": role}).one_or_none()
    return row and (row.definition, row.parameters, row.release)


def observe(connection: Connection, role: str, seconds: float) -> None:
    """Write a recent mean run time, which sizes the tickets of `chunk="auto"`. Call it rarely, not for each task."""
    observed = {"role": role, "seconds": seconds}
    if connection.execute(OBSERVE, observed).first() is None:
        connection.execute(OBSERVE_FIRST, observed)
