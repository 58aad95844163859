"""Dead letters: messages of plain Celery apps that became no task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click
from sqlalchemy import Connection

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import REFUSED, FindApp, command, with_options
from celeriac.errors import EnqueueRefused, Unknown
from celeriac.operate import dead_letters
from celeriac.operate.audit import Change
from celeriac.seam.dead_letters import replay
from celeriac.store.messages import in_lines

_COLUMNS = ("id", "at", "name", "task_id", "sender", "reason")

End = Callable[[Connection, int], Change]


@command
@click.option("--name", help="For this task.")
@click.option("--limit", default=20, show_default=True)
@click.option("--before", type=int, help="The last id of the page before.")
def list_(find: FindApp, /, **wanted: Any) -> None:
    """List dead letters, newest first, each with its reason."""
    with find().database.reading() as connection:
        rows = insights.dead_letters(connection, **wanted)
    output.tell(rows, output.table(rows, _COLUMNS))


@command
@click.argument("letter", type=int)
def show(find: FindApp, /, letter: int) -> None:
    """Show a dead letter: its task, its arguments, its reason, and the message itself."""
    with find().database.reading() as connection:
        fields = insights.dead_letter(connection, letter)
    output.tell(fields, (f"{name.replace('_', ' '):8}  {_whole(value)}" for name, value in fields.items()))


def _whole(value: Any) -> str:
    return value if isinstance(value, str) else output.cell(value)


_some = with_options(
    click.argument("letters", nargs=-1, type=int, metavar="[ID]..."),
    click.option("--name", help="All dead letters for this task."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--why", default="", help="For the audit trail."),
)


@command
@_some
def replay_(find: FindApp, /, why: str, **wanted: Any) -> None:
    """Enqueue the tasks of dead letters; those that still fit no role stay."""
    app = find()
    put = partial(replay, app)
    _end(app, "replay", lambda c, letter: put(c, letter, by=output.by(), why=why), **wanted)


@command
@_some
def discard(find: FindApp, /, why: str, **wanted: Any) -> None:
    """Delete dead letters; the audit trail keeps their names, senders and reasons."""
    _end(find(), "discard", lambda c, letter: dead_letters.discard(c, letter, by=output.by(), why=why), **wanted)


def _end(app: Celeriac, verb: str, end: End, *, letters: Sequence[int], name: str | None, yes: bool) -> None:
    """Replay or discard each letter in a transaction of its own."""
    if bool(letters) == (name is not None):
        raise click.UsageError("either name dead letters by their ids, or all of a task with --name")
    if name is not None:
        letters = list(_named(app, name))
        if letters and not yes:
            output.ask(f"{verb} {len(letters):,} dead letters?")
    done: list[Change] = []
    refused: dict[int, str] = {}
    try:
        for letter in letters:
            try:
                with app.database.transaction() as connection:
                    change = end(connection, letter)
                done.append(change)
            except (EnqueueRefused, Unknown) as error:
                refused[letter] = str(error)
    finally:
        app.kick({change.after["role"] for change in done if change.after})
    output.tell({"done": done, "refused": refused}, f"{len(done)} done, {len(refused)} not")
    for line in in_lines(refused):
        output.say(line, err=True)
    if refused:
        raise click.exceptions.Exit(REFUSED)


def _named(app: Celeriac, name: str) -> Iterator[int]:
    before: int | None = None
    while True:
        with app.database.reading() as connection:
            page = insights.dead_letters(connection, name=name, limit=insights.MOST_ROWS, before=before)
        yield from (row["id"] for row in page)
        if not page:
            return
        before = page[-1]["id"]
