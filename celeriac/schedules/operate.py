"""Operators' changes to schedules, for every surface: audited, and refused if a tick could not run the result.

Each raises DBAPIError (LockNotAvailable) if somebody's open transaction locks the row for longer than `PATIENCE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg2.errors import UniqueViolation
from sqlalchemy import Connection, RowMapping
from sqlalchemy.exc import IntegrityError

from celeriac.enqueue.foreign import RoleNamed
from celeriac.errors import BadValue, ConfigurationError, IllegalMove, Unknown
from celeriac.insights.tasks import redaction
from celeriac.operate import PATIENCE, audit
from celeriac.operate.audit import Change
from celeriac.schedules import written
from celeriac.schedules.arguments import task_of
from celeriac.schedules.decide import CHANGEABLE, Entry
from celeriac.schedules.expressions import parse
from celeriac.schedules.listed import entries
from celeriac.schedules.timetable import RunNow, Timetable
from celeriac.store.connections import Database
from celeriac.store.sensitive import kept

if TYPE_CHECKING:
    from celeriac.app import Celeriac

Name = str | int

#: The columns of a row that the audit trail keeps.
_AUDITED = ("name", "target", *CHANGEABLE)


def create(app: Celeriac, entry: Entry, *, by: str, why: str = "") -> RowMapping:
    """Create an operator's schedule. Raises BadValue, EnqueueRefused, or IllegalMove if the name is taken."""
    refuse_what_cannot_run(app.role_named, app.settings.max_argument_bytes, entry)
    with _taken(entry.name, entry.kwargs), app.database.transaction(patience=PATIENCE) as connection:
        row = written.planned(connection, written.create(connection, entry, by))
        _audit(connection, "create", None, row, by, why)
        return row


def change(
    app: Celeriac, name: Name, changes: Mapping[str, Any], *, action: str = "update", by: str, why: str = "",
    seen: str | None = None,
) -> RowMapping:  # fmt: skip
    """Change a schedule. `seen`: its `updated_at` (ISO 8601) when read. One of the beat config keeps its name.

    Raises Unknown, BadValue, EnqueueRefused, or IllegalMove, also if somebody changed it since it was seen.
    """
    called, kwargs = str(changes.get("name", name)), changes.get("kwargs", {})
    with _taken(called, kwargs), app.database.transaction(patience=PATIENCE) as connection:
        before = get(connection, name, lock=True)
        if seen is not None and before["updated_at"].isoformat() != seen:
            raise IllegalMove("somebody changed it meanwhile: open the form again")
        if before["declared"] is not None and changes.get("name", before["name"]) != before["name"]:
            raise IllegalMove(f"{before['name']!r} stands in the beat config: its name is that of its entry there")
        if "kwargs" in changes:
            changes = {**changes, "kwargs": kept(changes["kwargs"], before["kwargs"])}
        entry = Entry(**{field: before[field] for field in ("name", "kind", "target", *CHANGEABLE)})
        refuse_what_cannot_run(app.role_named, app.settings.max_argument_bytes, replace(entry, **changes))
        after = written.planned(connection, written.change(connection, before, **changes))
        _audit(connection, action, before, after, by, why)
        return after


def toggle(app: Celeriac, name: Name, enabled: bool, *, by: str, why: str = "") -> RowMapping:
    """Switch a schedule on or off. Instants of the time when it was off do not count as missed. Raises Unknown."""
    return change(app, name, {"enabled": enabled}, action="toggle", by=by, why=why)


def delete(database: Database, name: Name, *, by: str, why: str = "") -> RowMapping:
    """Delete a schedule and return its row. Raises Unknown, or IllegalMove for one of the beat config."""
    with database.transaction(patience=PATIENCE) as connection:
        row = get(connection, name, lock=True)
        if row["declared"] is not None:
            raise IllegalMove(
                f"{row['name']!r} stands in the beat config and would come back with it: switch it off instead"
            )
        written.delete(connection, row)
        _audit(connection, "delete", row, None, by, why)
        return row


def run_now(app: Celeriac, name: Name, *, by: str) -> RunNow:
    """Run a schedule once, apart from its instants, even if it is switched off, unless its last task is unfinished. A
    schedule of the beat config can run before any beat has started. Raises Unknown.
    """
    with _taken(str(name), {}), app.database.transaction(patience=PATIENCE) as connection:
        if isinstance(name, str) and written.find(connection, name) is None and (entry := entries(app).get(name)):
            written.install_missing(connection, entry, f"beat {app.main}", int(app.settings.deployment), by)
        row = get(connection, name)
    done = Timetable(app).run_now(row["id"])
    audited = Change(str(row["id"]), None, {"told": done.result, "ran": done.ran})
    with app.database.transaction(patience=PATIENCE) as connection:
        audit.write(connection, "run-now", "schedule", [audited], by=by)
    return done


def get(connection: Connection, name: Name, *, lock: bool = False) -> RowMapping:
    """Return a schedule by name (a text) or id (a number). Raises Unknown."""
    row = written.find(connection, name, lock=lock)
    if row is None:
        raise Unknown(f"there is no schedule {name!r}; nothing was changed")
    return row


def refuse_what_cannot_run(role_named: RoleNamed, limit: float, entry: Entry) -> None:
    """Refuse what a tick could not run. Raises BadValue naming the field, or EnqueueRefused."""
    _try("name", entry.name, entry.check_name)
    _try("cron_expression", entry.cron_expression, lambda: parse(entry.cron_expression, "UTC"))
    _try("timezone", entry.timezone, lambda: parse(entry.cron_expression, entry.timezone))
    _try("misfire_grace", entry.misfire_grace, entry.check)
    if entry.kind == "task":
        task_of(role_named, limit, entry, "a check")


def _try(field: str, value: object, act: Callable[[], object]) -> None:
    try:
        act()
    except ConfigurationError as error:
        raise BadValue(f"{field}={value!r}: {error}") from error


@contextmanager
def _taken(name: str, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Raise IllegalMove if the name is taken, BadValue if a constraint of the application refuses the row."""
    try:
        yield
    except IntegrityError as error:
        if isinstance(error.orig, UniqueViolation):
            raise IllegalMove(f"there is a schedule named {name!r} already; nothing was changed") from error
        raise BadValue(f"kwargs={dict(kwargs)!r:.200}: {written.what_refuses(error)}; nothing was changed") from error


def _shown(connection: Connection, row: RowMapping) -> dict[str, Any]:
    (redacted,) = redaction.schedules(connection, [dict(row)])
    return {field: redacted[field] for field in _AUDITED}


def _audit(
    connection: Connection, action: str, before: RowMapping | None, after: RowMapping | None, by: str, why: str
) -> None:
    was, now = (_shown(connection, row) if row else None for row in (before, after))
    (job,) = {row["id"] for row in (before, after) if row}
    audit.write(connection, action, "schedule", [Change(str(job), was, now)], by=by, why=why)
