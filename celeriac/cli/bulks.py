"""Bulks: the work that `tasks retry --later` and similar commands began, and that API servers go on with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import FindApp, command
from celeriac.operate import PATIENCE, bulks
from celeriac.repair import bulks as works

_COLUMNS = ("id", "state", "move", "asked", "done", "skipped", "left", "filter", "by", "created_at", "trouble")


@command
@click.option("--limit", default=20, show_default=True)
@click.option("--before", type=int, help="The last id of the page before.")
def list_(find: FindApp, /, limit: int, before: int | None) -> None:
    """List bulks, newest first, each with its progress."""
    with find().database.reading() as connection:
        rows = insights.bulks(connection, limit=limit, before=before)
    output.tell(rows, output.table(rows, _COLUMNS))


@command
@click.argument("number", type=click.IntRange(1, 2**63 - 2))
def show(find: FindApp, /, number: int) -> None:
    """Show a bulk: its filter, its progress, and what it skipped."""
    tell(find(), number)


@command
def work(find: FindApp, /) -> None:
    """Work on all open bulks; others may work on them at the same time."""
    moved = works.work(find().database)
    output.tell({"moved": moved}, f"{moved:,} tasks")


@command
@click.argument("number", type=click.IntRange(1, 2**63 - 2))
@click.option("--why", default="", help="For the audit trail.")
def stop(find: FindApp, /, number: int, why: str) -> None:
    """Stop a bulk after its current batch; moved tasks stay so."""
    app = find()
    with app.database.transaction(patience=PATIENCE) as connection:
        bulks.stop(connection, number, by=output.by(), why=why)
    tell(app, number)


def tell(app: Celeriac, number: int) -> None:
    """Print a bulk."""
    with app.database.reading() as connection:
        row = insights.bulk(connection, number)
    output.tell(row, _lines(row))


def _lines(row: dict[str, Any]) -> Iterator[str]:
    yield from output.table([row], _COLUMNS)
    most_first = sorted(row["reasons"].items(), key=lambda each: (-each[1], each[0]))
    yield from (f"{n:,} skipped: {reason}" for reason, n in most_first)
    yield from (f"{skip['id']}: {skip['reason']}" for skip in row["skips"])
