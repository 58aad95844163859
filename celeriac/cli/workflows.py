"""Workflows: show one as a whole, list its parts, cancel it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from celeriac import insights
from celeriac.cli import output
from celeriac.cli.group import FindApp, command
from celeriac.insights import Workflow
from celeriac.operate import workflows
from celeriac.store.states import ALL, WORDS

_COLUMNS = ("role", *ALL, "then", "barrier")
_UNDER_WAY_COLUMNS = ("id", "role", "created_at", "unfinished", "finished")
_PART_COLUMNS = ("id", "role", "status", "waits_for", "parent_id", "place", "body", "barrier", "error_message")


@command
@click.option("--limit", type=click.IntRange(1, insights.MOST_ROWS), default=20, show_default=True)
@click.option("--after", help="The last id of the page before.")
def list_(find: FindApp, /, limit: int, after: str | None) -> None:
    """List workflows that have an unfinished part, by id."""
    with find().database.reading() as connection:
        page = insights.workflows_under_way(connection, limit=limit + 1, after=after)
    rows, more = [asdict(one) for one in page[:limit]], page[limit:]
    last = [f"more with --after '{output.safe(rows[-1]['id'])}'"] if more else []
    output.tell(rows, [*output.table(rows, _UNDER_WAY_COLUMNS), *last] if rows else "no workflow is under way")


@command
@click.argument("workflow")
def show(find: FindApp, /, workflow: str) -> None:
    """Show a workflow's progress and shape: a line for each role's parts that hold back the same body."""
    with find().database.reading() as connection:
        overview = insights.workflow(connection, workflow)
    output.tell(overview, _lines(overview))


@command
@click.argument("workflow")
@click.option("--status", "statuses", multiple=True, type=click.Choice([*WORDS]))
@click.option("--role", help="Of this role.")
@click.option("--barrier", type=click.UUID, help="Only parts at this barrier: see `show`.")
@click.option("--limit", default=20, show_default=True)
@click.option("--after", help="The `next` of the page before.")
def tasks(find: FindApp, /, workflow: str, barrier: object, **wanted: Any) -> None:
    """List a workflow's parts, newest first."""
    with find().database.reading() as connection:
        page = insights.workflow_tasks(
            connection, workflow, barrier=None if barrier is None else str(barrier), **wanted
        )
    more = [f"more with --after '{page.next}'"] if page.next else []
    output.tell(page, [*output.table(page.items, _PART_COLUMNS), *more])


@command
@click.argument("workflow")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--why", default="", help="For the events and the audit trail.")
def cancel(find: FindApp, /, workflow: str, yes: bool, why: str) -> None:
    """Cancel all unfinished parts of a workflow; running ones are requested to stop, and no new part begins."""
    app = find()
    with app.database.reading() as connection:
        overview = insights.workflow(connection, workflow)
    unfinished = overview.total - overview.done
    if unfinished and not yes:
        output.ask(f"cancel {unfinished:,} tasks?")
    asked, ended = 0, 0
    with output.progress(unfinished, "cancel") as bar:
        for some in workflows.cancel(app.database, overview.id, by=output.by(), why=why):
            asked, ended = asked + some.asked, ended + len(some.changed) - some.asked
            bar.update(len(some.changed))
    output.tell({"cancelled": ended, "asked": asked}, f"{ended} cancelled, {asked} that run were told to stop")


def _lines(overview: Workflow) -> Iterator[str]:
    said = {"workflow": overview.id, "state": overview.state, "done": f"{overview.done:,} of {overview.total:,}"}
    said |= {name: at for name in ("created_at", "started_at", "completed_at") if (at := getattr(overview, name))}
    for name, value in said.items():
        yield f"{name.replace('_', ' '):12}  {output.cell(value)}"
    then: dict[int, list[str]] = {}
    for edge in overview.edges:
        then.setdefault(edge.source, []).append(overview.nodes[edge.target].role)
    rows = [
        {"role": node.role, "barrier": node.barrier, "then": ", ".join(then.get(n, ()))} | node.counts
        for n, node in enumerate(overview.nodes)
    ]
    yield from ["", *output.table(rows, _COLUMNS)]
    if overview.left_out:
        yield f"and {overview.left_out:,} more of these lines"
