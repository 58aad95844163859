"""Schedules: see them, change them, run one now. `docs/schedules.md` tells what their fields mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from sqlalchemy import RowMapping

from celeriac import insights
from celeriac.cli import output
from celeriac.cli.choice import named
from celeriac.cli.group import Command, FindApp, Group
from celeriac.schedules import operate
from celeriac.schedules.decide import Entry
from celeriac.schedules.written import shown

_COLUMNS = (
    "name", "kind", "target", "cron_expression", "in_words", "timezone", "enabled", "next_run_at", "late", "differs",
    "quarantined",
)  # fmt: skip


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
    """List schedules: what each does, when it runs next, and in what it differs from the beat config."""
    with find().database.reading() as connection:
        rows = [shown(row) for row in insights.schedules(connection)]
    output.tell(rows, output.table([_shown(row) for row in rows], _COLUMNS))


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
    _tell(operate.create(app, entry, by=output.by(), why=why))


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
    _tell(operate.change(find(), name, changes, by=output.by(), why=why))


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("state", type=click.Choice(["on", "off"]), required=False)
@click.option("--why", default="", help="For the audit trail.")
@click.pass_obj
def toggle(find: FindApp, /, name: str, state: str | None, why: str) -> None:
    """Switch a schedule on or off, or over. One that is switched on again has missed nothing."""
    app = find()
    with app.database.reading() as connection:
        enabled = not operate.found(connection, name)["enabled"] if state is None else state == "on"
    _tell(operate.toggle(app, name, enabled, by=output.by(), why=why))


@schedule.command(cls=Command)
@click.argument("name")
@click.option("--why", default="", help="For the audit trail.")
@click.pass_obj
def delete(find: FindApp, /, name: str, why: str) -> None:
    """Delete a schedule that an operator made."""
    operate.delete(find(), name, by=output.by(), why=why)
    output.tell({"name": name, "deleted": True}, f"{name} is deleted")


@schedule.command("run-now", cls=Command)
@click.argument("name")
@click.pass_obj
def run_now(find: FindApp, /, name: str) -> None:
    """Run it once, beside its instants, switched on or not."""
    told = operate.run_now(find(), name, by=output.by())
    output.tell({"name": name, "told": told}, f"{name}: {told}")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    late = output.age(row["late_seconds"]) if row["late_seconds"] else None
    return row | {"late": late, "differs": ", ".join(row["differs"]) or None}


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _tell(row: RowMapping) -> None:
    told = shown(dict(row))
    state, said = "on" if row["enabled"] else "off", told["in_words"]
    when = f"{row['cron_expression']} {row['timezone']}" + (f" ({said})" if said else "")
    output.tell(told, f"{row['name']}: {when}, {row['target']}, {state}")


COMMANDS = (schedule,)
