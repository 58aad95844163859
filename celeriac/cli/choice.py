"""Which tasks a command means: those named, or all that a filter meets, previewed before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.insights import WORDS, Filter

_OPTIONS = (
    click.option("--status", "words", multiple=True, type=click.Choice(WORDS), help="Ours, or another system's word."),
    click.option("--role", help="Of this role."),
    click.option("--account", help="Of this account."),
    click.option("--lock-key", help="With this lock key."),
    click.option("--unique-key", help="With this unique key."),
    click.option("--worker", "worker_id", help="Held by this worker."),
    click.option("--older-than", type=float, metavar="SECONDS", help="Enqueued at least so long ago."),
)


def filtering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the filter's options; `Filter.of` takes their values."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def row_ids(app: Celeriac, tasks: Iterable[str]) -> list[int]:
    """Rows by their ids or task ids. Raises Unknown before anything is done to any of them."""
    with app.database.reading() as connection:
        return [insights.get(connection, given)["id"] for given in tasks]


def chosen(app: Celeriac, tasks: Sequence[str], wanted: Filter, *, most: int, sure: bool, verb: str) -> list[int]:
    """The rows' ids. What a filter means is counted, and asked about unless somebody is sure."""
    told = wanted != Filter()
    if bool(tasks) == told:
        raise click.UsageError("name tasks, or give a filter (--status, --role, --account, …), one of both")
    if tasks:
        return row_ids(app, tasks)
    with app.database.reading() as connection:
        ids = insights.matching(connection, wanted, most=most)
    if not sure and ids:
        click.confirm(f"{verb} {len(ids)} tasks?", abort=True, err=True)
    return ids
