"""Steer tasks: retry, cancel, give another priority, make due now, give another role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from celeriac.app import Celeriac
from celeriac.cli import bulks, choice, output
from celeriac.cli.group import REFUSED, FindApp, command, with_options
from celeriac.insights import Filter
from celeriac.operate import PATIENCE, steer
from celeriac.operate import move as moving
from celeriac.operate.audit import AuditedTogether
from celeriac.operate.steer import Move, Steered
from celeriac.repair import bulks as works
from celeriac.store.messages import in_lines
from celeriac.store.states import MOVES, WAITS_FOR_TIME

_bulk = with_options(
    click.argument("tasks", nargs=-1, metavar="[TASK]..."),
    choice.filtering,
    click.option("--most", type=int, help="At most so many of a filter's matches; by default all."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--preview", is_flag=True, help="Count the filter's matches, and change nothing."),
    click.option("--why", default="", help="For the events and the audit trail."),
)


_LATER = click.option(
    "--later", is_flag=True, help="Leave the filter's matches, however many, to API servers as a bulk."
)


@command
@_bulk
@click.option("--failure", metavar="FINGERPRINT", help="All failures of this kind, as far back as they are kept.")
@click.option("--go-on", "goes_on", is_flag=True, help="Keep their progress, and count their attempts on.")
@_LATER
def retry(find: FindApp, /, why: str, goes_on: bool, later: bool, **options: Any) -> None:
    """Retry failed or cancelled TASKs (ids or task ids, or all that a filter matches): they wait again."""
    if goes_on and later:
        raise click.UsageError("a bulk retries with all attempts: give either --go-on or --later")
    move = partial(steer.retry, by=output.by(), why=why, goes_on=goes_on)
    _steer(find(), "retry", move, later=Later(why) if later else None, **options)


@command
@_bulk
@_LATER
def cancel(find: FindApp, /, why: str, later: bool, **options: Any) -> None:
    """Cancel TASKs; a running one is requested to stop."""
    move = partial(steer.cancel, by=output.by(), why=why)
    _steer(find(), "cancel", move, later=Later(why) if later else None, **options)


@command
@click.argument("to", metavar="PRIORITY", type=int)
@_bulk
@_LATER
def prioritise(find: FindApp, /, to: int, why: str, later: bool, **options: Any) -> None:
    """Give unfinished TASKs another PRIORITY. Write `-- -5` for one below 0."""
    move = partial(steer.set_priority, priority=to, by=output.by(), why=why)
    _steer(find(), "prioritise", move, later=Later(why, to) if later else None, **options)


@command
@_bulk
def hasten(find: FindApp, /, why: str, **options: Any) -> None:
    """Make TASKs that wait for their time, planned or between two attempts, due now."""
    _steer(find(), "hasten", partial(steer.hasten, by=output.by(), why=why), **options)


@command
@click.argument("task")
@click.argument("arguments", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--why", default="", help="For the events and the audit trail.")
def edit(find: FindApp, /, task: str, arguments: tuple[str, ...], why: str) -> None:
    """Change the arguments of a waiting TASK. A value is JSON, or else a text."""
    app = find()
    change = app.edit(choice.row_id(app, task), choice.named(arguments), by=output.by(), why=why)
    output.tell(change, f"{change.target} is called with another {', '.join((change.after or {})['arguments'])}")


@command
@click.argument("old")
@click.argument("new")
@click.option("--most", type=int, help="At most so many; by default all.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--preview", is_flag=True, help="Count them, and change nothing.")
@click.option("--why", default="", help="For the events and the audit trail.")
def move(find: FindApp, /, old: str, new: str, why: str, **options: Any) -> None:
    """Move waiting tasks of a renamed role to its new name. Running ones stay as they are."""
    app = find()
    _, signature = app.role_declared(new)

    def to_new(connection: Any, ids: Sequence[int]) -> Steered:
        return moving.move(connection, ids, new, signature, by=output.by(), why=why)

    try:
        _steer(app, "move", to_new, tasks=(), words=(), role=old, **options)
    finally:
        if not options["preview"]:
            app.kick([new])


@dataclass(frozen=True, slots=True)
class Later:
    """The parameters of a bulk besides its filter."""

    why: str
    priority: int | None = None


def _steer(
    app: Celeriac, verb: str, move: Move, *, tasks: tuple[str, ...], most: int | None, yes: bool, preview: bool,
    words: Sequence[str], failure: str | None = None, later: Later | None = None, **options: Any,
) -> None:  # fmt: skip
    asked = Filter.of(words, **options)
    has_filter = asked != Filter()
    if failure is not None and asked != Filter(role=asked.role, newer_than=asked.newer_than):
        raise click.UsageError("--failure goes with --role and --newer-than, and no other filter")
    if failure is not None and later and asked.newer_than is not None:
        raise click.UsageError("a bulk has no time for a kind of failure: give either --newer-than or --later")
    if later and (tasks or most is not None):
        raise click.UsageError("--later is for all that a filter matches: name no tasks, and give no --most")
    waits_for = WAITS_FOR_TIME if has_filter and verb == "hasten" else asked.waits_for
    statuses = asked.statuses or (MOVES[verb] if has_filter else None)
    wanted = replace(asked, statuses=statuses, waits_for=waits_for)
    sure = yes or preview
    selection = choice.chosen(app, tasks, wanted, failure=failure, most=most, sure=sure, verb=verb)
    if preview:
        output.tell({"tasks": len(selection.ids), "in_all": selection.in_all}, str(selection))
        return
    if later:
        with app.database.transaction(patience=PATIENCE) as connection:
            number = works.ask(
                connection, verb, failure or asked, role=asked.role, by=output.by(), why=later.why,
                priority=later.priority,
            )  # fmt: skip
        bulks.tell(app, number)
        return
    meant = {works.FINGERPRINT: failure} | works.conditions(asked) if failure else works.conditions(wanted)
    together = None if tasks else AuditedTogether(meant, len(selection.ids))
    _in_batches(app, verb, selection, move, together)


def _in_batches(app: Celeriac, verb: str, chosen: choice.Chosen, move: Move, together: AuditedTogether | None) -> None:
    """Steer the tasks in bounded transactions, with a progress bar."""
    done = Steered()
    with output.progress(len(chosen.ids), verb) as bar:
        for some in steer.in_batches(app.database, chosen.ids, move, many=together):
            done += some
            bar.update(len(some.changed) + len(some.refused) + len(some.missing))
    _tell(done, chosen.in_all - len(chosen.ids))


def _tell(done: Steered, left: int) -> None:
    more = f"; {left:,} more are meant" if left else ""
    output.tell(done, f"{len(done.changed):,} changed, {len(done.refused) + len(done.missing):,} not{more}")
    for line in in_lines(done.refused):
        output.say(line, err=True)
    if done.refused or done.missing:
        raise click.exceptions.Exit(REFUSED)
