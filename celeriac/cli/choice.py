"""The tasks a command applies to: those named, or all that a filter matches, previewed before anything changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import with_options
from celeriac.errors import BadValue
from celeriac.insights import Filter, as_argument
from celeriac.insights.tasks.conditions import CONDITIONS, WAITS
from celeriac.store.states import WORDS

#: No bound: only `--most` limits how many tasks a filter matches.
EVERY = 2**63 - 1


def named(arguments: Iterable[str]) -> dict[str, Any]:
    """Parse arguments given as `NAME=VALUE`; a value is JSON, or else a text."""
    kwargs: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise click.UsageError(f"{argument!r}: give arguments as NAME=VALUE")
        if name in kwargs:
            raise click.UsageError(f"{name} is given twice")
        kwargs[name] = as_argument(value)
    return kwargs


#: How options that are not plain texts are parsed.
_PARSED: Mapping[str, Mapping[str, Any]] = {
    "status": {"multiple": True, "type": click.Choice([*WORDS])},
    "waits_for": {"type": click.Choice(WAITS)},
    "priority": {"metavar": "RANGE"},
    "newer_than": {"type": float, "metavar": "SECONDS"},
    "older_than": {"type": float, "metavar": "SECONDS"},
}

#: Adds the filter's options to a command; `Filter.of` takes their values.
filtering = with_options(
    *(
        click.option(
            one.option, "words" if one.name == "status" else one.name, help=one.help, **_PARSED.get(one.name, {})
        )
        for one in CONDITIONS
    ),
    click.option(
        "--arg",
        "arguments",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda _, __, arguments: named(arguments) or None,
        help="Called with this argument; a value is JSON, or else a text. If there are several, all have to match.",
    ),
)


def row_ids(app: Celeriac, tasks: Iterable[str]) -> list[int]:
    """Return row ids, given ids or task ids. Raises Unknown before anything is changed."""
    with app.database.reading() as connection:
        return [insights.row_of(connection, task) for task in tasks]


def row_id(app: Celeriac, task: str) -> int:
    return row_ids(app, [task])[0]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen tasks. `in_all`: how many match; `ids` has fewer only if a maximum is given."""

    ids: list[int]
    in_all: int

    def __str__(self) -> str:
        of_all = "" if len(self.ids) == self.in_all else f" of {self.in_all:,}"
        return f"{len(self.ids):,}{of_all} tasks"


def chosen(
    app: Celeriac, tasks: Sequence[str], wanted: Filter, *, failure: str | None = None, most: int | None, sure: bool,
    verb: str,
) -> Chosen:  # fmt: skip
    """Return the tasks named, or those that the filter matches; the latter have to be confirmed unless `sure`.
    `failure`: the fingerprint of a group of failures, narrowed by the filter's role and time.
    """
    if bool(tasks) == (wanted != Filter() or failure is not None):
        raise click.UsageError("either name tasks, or give a filter (--status, --role, --account, …)")
    if tasks:
        ids = row_ids(app, tasks)
        return Chosen(ids, len(ids))
    if most is not None and most < 1:
        raise BadValue(f"most={most}: give 1 or more")
    with app.database.reading() as connection:
        if failure is not None:
            ids = insights.failed_of(connection, failure, role=wanted.role, since=wanted.newer_than)
        else:
            ids = insights.matching(connection, wanted, most=EVERY).ids
    selection = Chosen(ids[:most], len(ids))
    if not sure and ids:
        output.ask(f"{verb} {selection}?")
    return selection
