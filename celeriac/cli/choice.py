"""The tasks a command applies to: those named, or all that a filter matches, previewed before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.errors import BadValue
from celeriac.insights import Filter, as_argument
from celeriac.store.states import WORDS

#: No bound: a bulk is never cut short by itself.
EVERY = 2**63 - 1


def named(arguments: Iterable[str]) -> dict[str, Any]:
    """Parse arguments given as `NAME=VALUE`; a value is JSON, or else a text."""
    kwargs: dict[str, Any] = {}
    for name, value in map(_argument, arguments):
        if name in kwargs:
            raise click.UsageError(f"{name} is given twice")
        kwargs[name] = value
    return kwargs


def _argument(argument: str) -> tuple[str, Any]:
    name, equals, value = argument.partition("=")
    if not equals:
        raise click.UsageError(f"{argument!r}: give arguments as NAME=VALUE")
    return name, as_argument(value)


def _arguments(_: click.Context, __: click.Parameter, arguments: Sequence[str]) -> dict[str, Any] | None:
    return named(arguments) or None


_OPTIONS = (
    click.option(
        "--status", "words", multiple=True, type=click.Choice([*WORDS]), help="Ours, or another system's word."
    ),
    click.option("--role", help="Of this role."),
    click.option("--queue", help="Of this queue of its role."),
    click.option("--account", help="Of this account."),
    click.option("--lock-key", help="With this lock key."),
    click.option("--unique-key", help="With this unique key."),
    click.option("--worker", "worker_id", help="Held by this worker."),
    click.option("--older-than", type=float, metavar="SECONDS", help="Enqueued at least so long ago."),
    click.option("--newer-than", type=float, metavar="SECONDS", help="Enqueued at most so long ago."),
    click.option("--error", metavar="TEXT", help="Whose last error has this in it."),
    click.option("--priority", metavar="RANGE", help="50.., ..10, 50..70, or one number."),
    click.option("--schedule", metavar="NAME", help="Made by this schedule's ticks."),
    click.option(
        "--arg",
        "arguments",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_arguments,
        help="Called with this argument; a value is JSON, or else a text. Several have to hold all.",
    ),
)


def filtering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the filter's options; `Filter.of` takes their values."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def row_ids(app: Celeriac, tasks: Iterable[str]) -> list[int]:
    """Return row ids, given ids or task ids. Raises Unknown before anything is done to any of them."""
    with app.database.reading() as connection:
        return [insights.row_of(connection, task) for task in tasks]


def row_id(app: Celeriac, task: str) -> int:
    return row_ids(app, [task])[0]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen tasks. `in_all`: how many match; `ids` are fewer only if a maximum was given."""

    ids: list[int]
    in_all: int

    def __str__(self) -> str:
        return (
            f"{len(self.ids):,} tasks"
            if len(self.ids) == self.in_all
            else f"{len(self.ids):,} of {self.in_all:,} tasks"
        )


def chosen(app: Celeriac, tasks: Sequence[str], wanted: Filter, *, most: int | None, sure: bool, verb: str) -> Chosen:
    """Return the chosen tasks. Those that a filter matches are counted, and confirmed unless `sure`."""
    has_filter = wanted != Filter()
    if bool(tasks) == has_filter:
        raise click.UsageError("name tasks, or give a filter (--status, --role, --account, …), one of both")
    if tasks:
        ids = row_ids(app, tasks)
        return Chosen(ids, len(ids))
    if most is not None and most < 1:
        raise BadValue(f"most={most}: give 1 or more")
    with app.database.reading() as connection:
        ids = insights.matching(connection, wanted, most=EVERY).ids
    selection = Chosen(ids[:most], len(ids))
    if not sure and ids:
        output.ask(f"{verb} {selection}?")
    return selection
