"""Write `scheduled_jobs`, as beat starts and for operators."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg2.errors import ForeignKeyViolation
from sqlalchemy import Connection, RowMapping, TextClause, text
from sqlalchemy.exc import IntegrityError

from celeriac.schedules.decide import CHANGEABLE, Entry, PlannedJob, decide, merged
from celeriac.schedules.expressions import words

LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('celeriac schedules ' || :owner, 0))")

# INVARIANT: an operator's change while a config is written is read before it is overwritten, or comes after it.
HOLD = text("""
SELECT FROM celeriac.scheduled_jobs WHERE owner = :owner AND release <= :release ORDER BY name FOR UPDATE
""")

OWNED = text("""
SELECT *, enabled AND next_run_at < statement_timestamp() - interval '1 minute' AS is_late
FROM celeriac.scheduled_jobs WHERE name = ANY(CAST(:names AS text[])) OR owner = :owner
""")

# A pass or a sweep is due at once; a task is due when its expression says.
_INSERT = """
INSERT INTO celeriac.scheduled_jobs (
    name, kind, target, kwargs, options, cron_expression, timezone, enabled, priority, misfire, misfire_grace, overlap,
    description, owner, declared, release, created_by, planned_as
) VALUES (
    :name, :kind, :target, CAST(:kwargs AS jsonb), CAST(:options AS jsonb), :cron_expression, :timezone, :enabled,
    :priority, :misfire, :misfire_grace, :overlap, :description, :owner, CAST(:declared AS jsonb), :release,
    :created_by, CASE WHEN :kind <> 'task' THEN CAST(:timezone AS text) || '|' || :cron_expression END
)
"""

CREATE = text(f"{_INSERT} RETURNING *")

PUT = text(f"""{_INSERT}
ON CONFLICT (name) DO UPDATE
SET kind = excluded.kind, target = excluded.target, kwargs = excluded.kwargs, options = excluded.options,
    cron_expression = excluded.cron_expression, timezone = excluded.timezone, enabled = excluded.enabled,
    priority = excluded.priority, misfire = excluded.misfire, misfire_grace = excluded.misfire_grace,
    overlap = excluded.overlap, description = excluded.description, owner = excluded.owner,
    declared = excluded.declared, release = excluded.release, quarantined = NULL
WHERE scheduled_jobs.owner = excluded.owner
""")

RETIRE = text("""
UPDATE celeriac.scheduled_jobs SET enabled = false, declared = declared || '{"enabled": false}'
WHERE owner = :owner AND release <= :release AND declared IS NOT NULL AND name <> ALL(CAST(:names AS text[]))
    AND (declared ->> 'enabled')::boolean
""")

UNQUARANTINE = text(
    "UPDATE celeriac.scheduled_jobs SET quarantined = NULL WHERE quarantined IS NOT NULL AND owner = :owner"
)

_NAMED = "SELECT * FROM celeriac.scheduled_jobs WHERE name = :name"
_NUMBERED = "SELECT * FROM celeriac.scheduled_jobs WHERE id = :name"

READ, READ_BY_ID = text(_NAMED), text(_NUMBERED)

FIND, FIND_BY_ID = text(f"{_NAMED} FOR UPDATE"), text(f"{_NUMBERED} FOR UPDATE")

LIST = text("SELECT * FROM celeriac.scheduled_jobs WHERE name > :after ORDER BY name LIMIT :limit OFFSET :offset")

# A row that another beat or an operator has written meanwhile stays as it is.
PUT_MISSING = text(f"{_INSERT} ON CONFLICT (name) DO NOTHING")

NOW = text("SELECT statement_timestamp()")

PLAN = text("""
UPDATE celeriac.scheduled_jobs SET next_run_at = :next_run_at, planned_as = :planned_as WHERE id = :id RETURNING *
""")

CHANGE = text("""
UPDATE celeriac.scheduled_jobs
SET name = :name, target = :target, kwargs = CAST(:kwargs AS jsonb), options = CAST(:options AS jsonb),
    cron_expression = :cron_expression, timezone = :timezone, enabled = :enabled, priority = :priority,
    misfire = :misfire, misfire_grace = :misfire_grace, overlap = :overlap, description = :description,
    updated_at = clock_timestamp()
WHERE id = :id RETURNING *
""")

DELETE = text("DELETE FROM celeriac.scheduled_jobs WHERE id = :id")

KEEP_REPORT = text("UPDATE celeriac.scheduled_jobs SET last_report = CAST(:report AS jsonb) WHERE name = :name")

SUCCEEDED = text("""
UPDATE celeriac.scheduled_jobs SET last_report = last_report - 'error'
WHERE kind = 'sweep' AND target = :sweep AND jsonb_typeof(last_report -> 'error') = 'string'
""")

RAN = text("""
INSERT INTO celeriac.sweep_runs AS r (name, hour, runs, failed, done, seconds, longest, error)
VALUES (:name, date_trunc('hour', clock_timestamp()), 1, :failed, :done, :seconds, :seconds, :error)
ON CONFLICT (name, hour) DO UPDATE SET runs = r.runs + 1, failed = r.failed + excluded.failed,
    done = r.done + excluded.done, seconds = r.seconds + excluded.seconds,
    longest = greatest(r.longest, excluded.longest), error = coalesce(excluded.error, r.error)
""")

FORGET = text("""
DELETE FROM celeriac.sweep_runs WHERE name = :name AND hour < clock_timestamp() - interval '25 hours'
""")

#: The owner whose schedules every beat runs.
API = "api"


def of_others(connection: Connection, entries: Collection[Entry], owner: str) -> Iterator[str]:
    """Yield a line for each entry whose name belongs to somebody else."""
    owned = connection.execute(OWNED, {"names": [entry.name for entry in entries], "owner": owner})
    rows = {row.name: dict(row._mapping) for row in owned}
    for entry in entries:
        row = rows.get(entry.name)
        if row is None or row["owner"] == owner:
            continue
        if not _does_the_same(entry, row):
            problem = f"schedule {entry.name!r} is in the beat config, but one of that name belongs to {row['owner']!r}"
            yield f"{problem}: rename one of them"
        elif row["is_late"]:
            problem = f"schedule {entry.name!r} belongs to {row['owner']!r}, whose beat does not run it"
            yield f"{problem}: start that beat, or delete the row from celeriac.scheduled_jobs"


def _does_the_same(entry: Entry, row: Mapping[str, Any]) -> bool:
    """Return whether row and entry do the same: a pass or sweep serves the whole database, so any beat may run it."""
    return entry.kind != "task" and (entry.kind, entry.target) == (row["kind"], row["target"])


@dataclass(frozen=True, slots=True)
class Installed:
    """Entries of a beat config that were not written: names that belong to somebody else, passes and sweeps that
    another beat runs, and those an application's constraint refuses, with its message.
    """

    foreign: list[str]
    shared: list[str]
    refused: dict[str, str]


def install(connection: Connection, entries: Sequence[Entry], owner: str, release: int, by: str) -> Installed:
    """Write a beat config. An operator's changes stay; schedules that are no longer in the config are switched off. A
    newer release's rows are left alone.
    """
    connection.execute(LOCK, {"owner": owner})
    connection.execute(HOLD, {"owner": owner, "release": release})
    names = [entry.name for entry in entries]
    rows = {row.name: dict(row._mapping) for row in connection.execute(OWNED, {"names": names, "owner": owner})}
    foreign = [entry for entry in entries if entry.name in rows and rows[entry.name]["owner"] != owner]
    refused: dict[str, str] = {}
    for entry in entries:
        row = rows.get(entry.name)
        if entry not in foreign and (row is None or row["release"] <= release):
            try:
                with connection.begin_nested():
                    _put(connection, entry, merged(entry, row), owner, release, by)
            except IntegrityError as error:
                refused[entry.name] = what_refuses(error)
    connection.execute(RETIRE, {"owner": owner, "release": release, "names": names})
    connection.execute(UNQUARANTINE, {"owner": API})
    shared = [entry.name for entry in foreign if _does_the_same(entry, rows[entry.name])]
    return Installed([entry.name for entry in foreign if entry.name not in shared], shared, refused)


def what_refuses(error: IntegrityError) -> str:
    """Return Postgres' own sentence: `Key (subreddit_id)=(7) is not present in table "subreddits".`

    It is returned only for a foreign key; for other constraints it quotes the whole row, with the arguments.
    """
    detail = error.orig.diag.message_detail if isinstance(error.orig, ForeignKeyViolation) else None
    return detail or str(error.orig).partition("\n")[0]


def install_missing(connection: Connection, entry: Entry, owner: str, release: int, by: str) -> None:
    """Write an entry of the beat config before a beat has read it."""
    _put(connection, entry, merged(entry, None), owner, release, by, PUT_MISSING)
    if row := find(connection, entry.name, lock=True):
        planned(connection, row)


def _put(
    connection: Connection, entry: Entry, said: Mapping[str, Any], owner: str, release: int, by: str,
    statement: TextClause = PUT,
) -> None:  # fmt: skip
    fixed = {"name": entry.name, "kind": entry.kind, "target": entry.target, "owner": owner, "created_by": by}
    declared = {"declared": json.dumps(entry.declared()), "release": release}
    connection.execute(statement, dict(said) | fixed | declared | _as_json(said))


def _as_json(said: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(dict(said[name])) for name in ("kwargs", "options")}


def create(connection: Connection, entry: Entry, by: str) -> RowMapping:
    """Write an operator's schedule. Raises ConfigurationError, or IntegrityError if the name is taken."""
    entry.check()
    parameters = {name: getattr(entry, name) for name in ("name", "kind", "target", *CHANGEABLE)}
    parameters |= _as_json(parameters) | {"owner": API, "created_by": by, "declared": None, "release": 0}
    return connection.execute(CREATE, parameters).one()._mapping


def find(connection: Connection, name: str | int, *, lock: bool = False) -> RowMapping | None:
    """Find a schedule by name (a text) or id (a number). `lock`: nobody else changes it in this transaction."""
    read, find_it = (READ_BY_ID, FIND_BY_ID) if isinstance(name, int) else (READ, FIND)
    row = connection.execute(find_it if lock else read, {"name": name}).one_or_none()
    return None if row is None else row._mapping


def listed(connection: Connection, limit: int = 100, offset: int = 0, after: str = "") -> list[RowMapping]:
    """Return schedules by name, those after `after`."""
    parameters = {"limit": limit, "offset": offset, "after": after}
    return [row._mapping for row in connection.execute(LIST, parameters)]


def change(connection: Connection, row: RowMapping, **changes: Any) -> RowMapping:
    """Change a row found with `lock`. Raises ConfigurationError; the name of one of the beat config stays."""
    known = {name: row[name] for name in ("name", "kind", "target", *CHANGEABLE)} | changes
    Entry(**known).check()
    parameters = known | {"id": row["id"]} | _as_json(known)
    return connection.execute(CHANGE, parameters).one()._mapping


def planned(connection: Connection, row: RowMapping) -> RowMapping:
    """Set a locked row's next instant by its expression. An instant that is due already is left to the tick."""
    job = PlannedJob(*(row[name] for name in PlannedJob.__slots__))
    if job.planned_as == job.plan_key:
        return row
    plan = decide(job, connection.execute(NOW).scalar_one())
    if plan.run or plan.skipped:
        return row
    parameters = {"id": job.id, "next_run_at": plan.next_run_at, "planned_as": job.plan_key}
    return connection.execute(PLAN, parameters).one()._mapping


def delete(connection: Connection, row: RowMapping) -> None:
    """Delete the row. One of the beat config comes back with the next start: switch it off instead."""
    connection.execute(DELETE, {"id": row["id"]})


def differences(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from the beat config, with the config's values."""
    said = row["declared"] or {}
    return {name: said[name] for name in CHANGEABLE if name in said and said[name] != row[name]}


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as every surface shows it, with what `differs` and its expression in words."""
    said = words.phrase(row["cron_expression"], row["timezone"])
    return {**row, "differs": differences(row), "in_words": said}


def keep_report(connection: Connection, name: str, report: Mapping[str, Any]) -> None:
    """Record the report of a schedule's last pass or sweep."""
    connection.execute(KEEP_REPORT, {"name": name, "report": json.dumps(dict(report))})


def succeeded(connection: Connection, sweep: str) -> None:
    """Record that a sweep has succeeded by hand: it fails no more."""
    connection.execute(SUCCEEDED, {"sweep": sweep})


def ran(connection: Connection, name: str, report: Mapping[str, Any]) -> None:
    """Count a sweep's run in its hour; counts older than a day are deleted."""
    error = report.get("error")
    counted = {"failed": int(error is not None), "done": report.get("done", 0), "seconds": report["seconds"]}
    connection.execute(RAN, {"name": name, "error": error} | counted)
    connection.execute(FORGET, {"name": name})
