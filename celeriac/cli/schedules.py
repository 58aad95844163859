"""Schedules: see them, change them, run one now. `docs/schedules.md` tells what their fields mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from sqlalchemy import Connection, RowMapping
from sqlalchemy.exc import IntegrityError

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import Command, FindApp, Group
from celeriac.cli.tasks import named
from celeriac.errors import BadValue, ConfigurationError, IllegalMove, Unknown
from celeriac.intake import new_task
from celeriac.schedules import CHANGEABLE, Entry
from celeriac.timetable import Timetable
from celeriac.verbs import audit
from celeriac.verbs import schedule as verb
from celeriac.verbs.audit import Change

_COLUMNS = ("name", "kind", "target", "cron_expression", "timezone", "enabled", "next_run_at", "late", "quarantined")

_TOLD = ("name", "target", *CHANGEABLE)


@click.group(cls=Group)
def schedule() -> None:
    """List, add, edit, toggle and delete schedules; run one now."""


def _fields(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--timezone", help="IANA name."),
        click.option("--priority", type=int),
        click.option("--description"),
        click.option("--misfire", type=click.Choice(["skip", "once", "all"])),
        click.option("--misfire-grace", type=float, metavar="SECONDS"),
        click.option("--overlap", type=click.Choice(["skip", "allow"])),
        click.option("--why", default="", help="For the audit trail."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@schedule.command("list", cls=Command)
@click.pass_obj
def list_(find: FindApp, /) -> None:
    """List schedules: what each does, and when it runs next."""
    with find().database.statement() as connection:
        rows = insights.schedules(connection)
    shown = [row | {"late": output.age(row["late_seconds"]) if row["late_seconds"] else None} for row in rows]
    output.tell(rows, output.table(shown, _COLUMNS))


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("expression")
@click.argument("role")
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@_fields
@click.option("--off", is_flag=True, help="Not yet.")
@click.pass_obj
def add(
    find: FindApp, /, name: str, expression: str, role: str, arguments: tuple[str, ...], off: bool, why: str,
    **fields: Any,
) -> None:  # fmt: skip
    """Enqueue a task of ROLE whenever EXPRESSION says so: `schedule add nightly '0 3 * * *' report n=7`."""
    app = find()
    entry = Entry(
        name=name, kind="task", target=role, cron_expression=expression, kwargs=named(arguments), enabled=not off,
        **_given(fields),
    )  # fmt: skip
    _refuse_what_cannot_run(app, entry)
    try:
        with app.database.transaction() as connection:
            row = verb.create(connection, entry, output.by())
            _audit(connection, "create", row["id"], None, row, why)
    except IntegrityError as error:
        raise IllegalMove(f"there is a schedule named {name!r} already; nothing was changed") from error
    _tell(row)


@schedule.command(cls=Command)
@click.argument("name")
@click.option("--expression", "cron_expression")
@click.option("--argument", "arguments", multiple=True, metavar="NAME=VALUE", help="All of them, if any.")
@_fields
@click.pass_obj
def edit(find: FindApp, /, name: str, arguments: tuple[str, ...], why: str, **fields: Any) -> None:
    """Change what is given; the rest stays."""
    changes = _given(fields) | ({"kwargs": named(arguments)} if arguments else {})
    if not changes:
        raise click.UsageError("give what to change")
    _tell(_change(find(), name, changes, "update", why))


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("state", type=click.Choice(["on", "off"]), required=False)
@click.option("--why", default="", help="For the audit trail.")
@click.pass_obj
def toggle(find: FindApp, /, name: str, state: str | None, why: str) -> None:
    """Switch a schedule on or off, or over. One that is switched on again has missed nothing."""
    app = find()
    with app.database.statement() as connection:
        enabled = not _found(connection, name)["enabled"] if state is None else state == "on"
    _tell(_change(app, name, {"enabled": enabled}, "toggle", why))


@schedule.command(cls=Command)
@click.argument("name")
@click.option("--why", default="", help="For the audit trail.")
@click.pass_obj
def delete(find: FindApp, /, name: str, why: str) -> None:
    """Delete a schedule that an operator made."""
    with find().database.transaction() as connection:
        row = _found(connection, name, lock=True)
        if row["declared"] is not None:
            raise IllegalMove(f"{name!r} stands in the beat config and would come back: switch it off instead")
        verb.delete(connection, row)
        _audit(connection, "delete", row["id"], row, None, why)
    output.tell({"name": name, "deleted": True}, f"{name} is deleted")


@schedule.command("run-now", cls=Command)
@click.argument("name")
@click.pass_obj
def run_now(find: FindApp, /, name: str) -> None:
    """Run it once, beside its instants, switched on or not."""
    app = find()
    with app.database.statement() as connection:
        row = _found(connection, name)
    told = Timetable(app).run_now(row["name"])
    with app.database.transaction() as connection:
        change = Change(str(row["id"]), None, {"told": told})
        audit.write(connection, "run-now", "schedule", [change], by=output.by())
    output.tell({"name": row["name"], "told": told}, f"{row['name']}: {told}")


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _found(connection: Connection, name: str, *, lock: bool = False) -> RowMapping:
    row = verb.find(connection, name, lock=lock)
    if row is None:
        raise Unknown(f"there is no schedule {name!r}")
    return row


def _change(app: Celeriac, name: str, changes: dict[str, Any], action: str, why: str) -> RowMapping:
    with app.database.transaction() as connection:
        before = _found(connection, name, lock=True)
        known = {field: before[field] for field in ("name", "kind", "target", *CHANGEABLE)}
        _refuse_what_cannot_run(app, Entry(**known | changes))
        after = verb.change(connection, before, **changes)
        _audit(connection, action, before["id"], before, after, why)
        return after


def _refuse_what_cannot_run(app: Celeriac, entry: Entry) -> None:
    """What its tick would find out. Raises BadValue or EnqueueRefused."""
    try:
        entry.check()
    except ConfigurationError as error:
        raise BadValue(str(error)) from error
    if entry.kind == "task":
        role, signature = app.role_named(entry.target)
        limit = app.settings.max_argument_bytes
        new_task(role, signature, "a check", (), entry.kwargs, limit=limit, priority=entry.priority)


def _audit(
    connection: Connection, action: str, job: int, before: RowMapping | None, after: RowMapping | None, why: str
) -> None:
    was, now = ({field: row[field] for field in _TOLD} if row else None for row in (before, after))
    audit.write(connection, action, "schedule", [Change(str(job), was, now)], by=output.by(), why=why)


def _tell(row: RowMapping) -> None:
    state = "on" if row["enabled"] else "off"
    output.tell(dict(row), f"{row['name']}: {row['cron_expression']} {row['timezone']}, {row['target']}, {state}")


COMMANDS = (schedule,)
