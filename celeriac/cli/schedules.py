"""Schedules: show them, change them, run one now. `docs/schedules.md` explains their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from sqlalchemy import RowMapping

from celeriac import insights
from celeriac.cli import output
from celeriac.cli.choice import named
from celeriac.cli.group import FindApp, command, with_options
from celeriac.insights import Count, Lateness, Ticking
from celeriac.insights.tasks import redaction
from celeriac.insights.why.spans import span
from celeriac.schedules import operate
from celeriac.schedules.decide import Entry
from celeriac.schedules.written import shown

if TYPE_CHECKING:
    from celeriac.app import Celeriac

_COLUMNS = (
    "name", "kind", "target", "cron_expression", "in_words", "timezone", "enabled", "next_run_at", "late", "missed",
    "differs",
    "quarantined",
)  # fmt: skip

_TICK = ("due_at", "late", "task", "outcome", "why")


_fields = with_options(
    click.option("--timezone", help="IANA name."),
    click.option("--priority", type=int),
    click.option("--description"),
    click.option("--misfire", type=click.Choice(["skip", "once", "all"])),
    click.option("--misfire-grace", type=float, metavar="SECONDS"),
    click.option("--overlap", type=click.Choice(["skip", "allow"])),
    click.option("--why", default="", help="For the audit trail."),
)


@command
def list_(find: FindApp, /) -> None:
    """List schedules: what each does, when it runs next, what it missed in 24 h, and how it differs from its config."""
    with find().database.reading() as connection:
        rows = insights.schedules(connection)
        ticking = insights.ticking(connection, [row["id"] for row in rows if row["kind"] == "task"])
        late = insights.lateness(connection)
    rows = [shown(row) | _last(ticking.get(row["id"])) for row in rows]
    output.tell(rows, [*output.table([_shown(row) for row in rows], _COLUMNS), _late(late)])


@command
@click.argument("name")
@click.option("--limit", default=20, show_default=True)
def ticks(find: FindApp, /, name: str, limit: int) -> None:
    """Show the last ticks of a task's schedule: how late each was, its task's status, or why it was skipped."""
    with find().database.reading() as connection:
        row = operate.get(connection, name)
        rows = insights.ticks_of(connection, row["id"], limit=limit)
        late = insights.lateness(connection, row["id"])
    output.tell({"ticks": rows, "lateness": late}, [*output.table([_tick(one) for one in rows], _TICK), _late(late)])


@command
@click.argument("name")
@click.argument("expression")
@click.argument("role")
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@_fields
@click.option("--off", is_flag=True, help="Not yet.")
def add(
    find: FindApp, /, name: str, expression: str, role: str, arguments: tuple[str, ...], off: bool, why: str,
    **fields: Any,
) -> None:  # fmt: skip
    """Enqueue a task of ROLE whenever EXPRESSION says so: `schedules add nightly '0 3 * * *' report n=7`."""
    app = find()
    entry = Entry(
        name=name, kind="task", target=role, cron_expression=expression, kwargs=named(arguments), enabled=not off,
        **_without_none(fields),
    )  # fmt: skip
    _tell(app, operate.create(app, entry, by=output.by(), why=why))


@command
@click.argument("name")
@click.option("--expression", "cron_expression")
@click.option("--argument", "arguments", multiple=True, metavar="NAME=VALUE", help="All of them, if any.")
@_fields
def edit(find: FindApp, /, name: str, arguments: tuple[str, ...], why: str, **fields: Any) -> None:
    """Change a schedule; options not given stay."""
    changes = _without_none(fields) | ({"kwargs": named(arguments)} if arguments else {})
    if not changes:
        raise click.UsageError("give what to change")
    app = find()
    _tell(app, operate.change(app, name, changes, by=output.by(), why=why))


@command
@click.argument("name")
@click.argument("state", type=click.Choice(["on", "off"]), required=False)
@click.option("--why", default="", help="For the audit trail.")
def toggle(find: FindApp, /, name: str, state: str | None, why: str) -> None:
    """Switch a schedule on or off, or toggle it. Instants of the time when it was off do not count as missed."""
    app = find()
    with app.database.reading() as connection:
        enabled = not operate.get(connection, name)["enabled"] if state is None else state == "on"
    _tell(app, operate.toggle(app, name, enabled, by=output.by(), why=why))


@command
@click.argument("name")
@click.option("--why", default="", help="For the audit trail.")
def delete(find: FindApp, /, name: str, why: str) -> None:
    """Delete a schedule that an operator made."""
    operate.delete(find().database, name, by=output.by(), why=why)
    output.tell({"name": name, "deleted": True}, f"{name} is deleted")


@command
@click.argument("name")
def run_now(find: FindApp, /, name: str) -> None:
    """Run a schedule once, apart from its instants, even if it is off; not while its last task is unfinished."""
    done = operate.run_now(find(), name, by=output.by())
    outcome = done.result if done.ran else f"nothing was enqueued, its task {done.result} is unfinished"
    output.tell({"name": name, "told": done.result, "ran": done.ran}, f"{name}: {outcome}")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    late = output.age(row["late_seconds"]) if row["late_seconds"] else None
    n = row["missed_last_day"]
    missed = None if n is None else output.count(Count(n, row["missed_exact"]))
    return row | {"late": late, "missed": missed, "differs": ", ".join(row["differs"]) or None}


def _last(one: Ticking | None) -> dict[str, Any]:
    """Return the figures of a task's schedule; `missed_last_day` is a lower bound unless `missed_exact`."""
    return {
        "missed_last_day": one and one.missed.n, "missed_exact": one and one.missed.exact,
        "last_status": one and one.last and one.last["status"],
    }  # fmt: skip


def _tick(row: dict[str, Any]) -> dict[str, Any]:
    left_out = f"left out: {row['left_out']}"
    return row | {"late": span(row["late_seconds"]), "task": row["id"], "outcome": row["status"] or left_out}


def _late(late: Lateness) -> str:
    text = f"late now {span(late.now)}"
    if late.p95 is None or late.worst is None:
        return f"{text}; no tick made a task in 24 h"
    ticks = f"{'' if late.ticks.exact else 'the newest '}{late.ticks.n:,} ticks in 24 h"
    return f"{text}; p95 {span(late.p95)}, worst {span(late.worst)} of {ticks}"


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _tell(app: Celeriac, row: RowMapping) -> None:
    with app.database.reading() as connection:
        (job,) = redaction.schedules(connection, [shown(dict(row))])
    state, in_words = "on" if row["enabled"] else "off", job["in_words"]
    when = f"{row['cron_expression']} {row['timezone']}" + (f" ({in_words})" if in_words else "")
    output.tell(job, f"{row['name']}: {when}, {row['target']}, {state}")
