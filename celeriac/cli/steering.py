"""Steer tasks: retry, cancel, give another priority, make due now, give another role."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from celeriac.app import Celeriac
from celeriac.cli import choice, output
from celeriac.cli.group import REFUSED, Command, FindApp
from celeriac.insights import Filter
from celeriac.operate import move as moving
from celeriac.operate import steer
from celeriac.operate.audit import AuditedTogether
from celeriac.operate.steer import Move, Steered
from celeriac.repair.bulks import conditions
from celeriac.store.alike import in_lines
from celeriac.store.states import MOVES, WAITS_FOR_TIME


def _bulk(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.argument("tasks", nargs=-1, metavar="[TASK]..."),
        choice.filtering,
        click.option("--most", type=int, help="So many of those a filter means; all if it is left out."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--preview", is_flag=True, help="Count what the filter means, and change nothing."),
        click.option("--why", default="", help="For the events and the audit trail."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=Command)
@_bulk
@click.option("--go-on", "goes_on", is_flag=True, help="Their progress stays, and their attempts count on.")
@click.pass_obj
def retry(find: FindApp, /, why: str, goes_on: bool, **options: Any) -> None:
    """Let TASKs (ids or task ids, or all that a filter means) that failed or were cancelled wait again."""
    _steer(find(), "retry", lambda c, ids: steer.retry(c, ids, by=output.by(), why=why, goes_on=goes_on), **options)


@click.command(cls=Command)
@_bulk
@click.pass_obj
def cancel(find: FindApp, /, why: str, **options: Any) -> None:
    """Cancel TASKs; one that runs is told to stop."""
    _steer(find(), "cancel", lambda c, ids: steer.cancel(c, ids, by=output.by(), why=why), **options)


@click.command(cls=Command)
@click.argument("to", metavar="PRIORITY", type=int)
@_bulk
@click.pass_obj
def prioritise(find: FindApp, /, to: int, why: str, **options: Any) -> None:
    """Give TASKs that are not finished another PRIORITY. Write `-- -5` for one below 0."""

    def move(connection: Any, ids: Sequence[int]) -> Steered:
        return steer.set_priority(connection, ids, to, by=output.by(), why=why)

    _steer(find(), "prioritise", move, **options)


@click.command(cls=Command)
@_bulk
@click.pass_obj
def hasten(find: FindApp, /, why: str, **options: Any) -> None:
    """Let TASKs that wait for their time, planned or between two attempts, be due now."""
    _steer(find(), "hasten", lambda c, ids: steer.hasten(c, ids, by=output.by(), why=why), **options)


@click.command(cls=Command)
@click.argument("task")
@click.argument("arguments", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--why", default="", help="For the events and the audit trail.")
@click.pass_obj
def edit(find: FindApp, /, task: str, arguments: tuple[str, ...], why: str) -> None:
    """Call a TASK that waits with other arguments. A value is JSON, or else a text."""
    app = find()
    change = app.edit(choice.row_id(app, task), choice.named(arguments), by=output.by(), why=why)
    output.tell(change, f"{change.target} is called with another {', '.join((change.after or {})['arguments'])}")


@click.command(cls=Command)
@click.argument("old")
@click.argument("new")
@click.option("--most", type=int, help="So many; all if it is left out.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--preview", is_flag=True, help="Count them, and change nothing.")
@click.option("--why", default="", help="For the events and the audit trail.")
@click.pass_obj
def move(find: FindApp, /, old: str, new: str, why: str, **options: Any) -> None:
    """Let the tasks of a role that wait be of another, which it was renamed to. What runs stays where it is."""
    app = find()
    _, signature = app.role_declared(new)

    def to_new(connection: Any, ids: Sequence[int]) -> Steered:
        return moving.move(connection, ids, new, signature, by=output.by(), why=why)

    try:
        _steer(app, "move", to_new, tasks=(), words=(), role=old, **options)
    finally:
        if not options["preview"]:
            app.kick([new])


def _steer(
    app: Celeriac, verb: str, move: Move, *, tasks: tuple[str, ...], most: int | None, yes: bool, preview: bool,
    words: Sequence[str], **options: Any,
) -> None:  # fmt: skip
    has_filter = bool(words) or any(value is not None for value in options.values())
    waits_for = WAITS_FOR_TIME if has_filter and verb == "hasten" else None
    wanted = Filter.of(words or (MOVES[verb] if has_filter else ()), waits_for=waits_for, **options)
    selection = choice.chosen(app, tasks, wanted, most=most, sure=yes or preview, verb=verb)
    if preview:
        output.tell({"tasks": len(selection.ids), "in_all": selection.in_all}, str(selection))
        return
    many = AuditedTogether(conditions(wanted), len(selection.ids)) if has_filter and not tasks else None
    steer_all(app, verb, selection.ids, move, in_all=selection.in_all, many=many)


def steer_all(
    app: Celeriac,
    verb: str,
    ids: Sequence[int],
    move: Move,
    *,
    in_all: int | None = None,
    many: AuditedTogether | None = None,
) -> None:
    """Steer tasks, a bounded transaction at a time, with progress. `in_all`: how many match, if not all are steered.
    `many`: as for `in_batches`.
    """
    done, left = Steered(), (in_all or len(ids)) - len(ids)
    with output.progress(len(ids), verb) as bar:
        for some in steer.in_batches(app.database, ids, move, many=many):
            done += some
            bar.update(len(some.changed) + len(some.refused) + len(some.missing))
    _tell(done, left)


def _tell(done: Steered, left: int) -> None:
    more = f"; {left:,} more are meant" if left else ""
    output.tell(done, f"{len(done.changed):,} changed, {len(done.refused) + len(done.missing):,} not{more}")
    for line in in_lines(done.refused):
        output.say(line, err=True)
    if done.refused or done.missing:
        raise click.exceptions.Exit(REFUSED)
