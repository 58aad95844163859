"""Failures, grouped: show them, and mark a group. `tasks retry --failure` retries its tasks."""

from __future__ import annotations

from collections.abc import Iterator

import click

from celeriac import insights
from celeriac.cli import output
from celeriac.cli.group import FindApp, Seconds, command
from celeriac.insights import Failures
from celeriac.insights.failures.failures import OLDEST
from celeriac.operate import failures as verb

_COLUMNS = (
    "fingerprint",
    "state",
    "count",
    "last_hour",
    "retrying",
    "role",
    "message",
    "where",
    "first_seen",
    "last_seen",
    "accounts",
    "task",
)

_TASKS = ("id", "task_id", "role", "account", "completed_at", "worker_id", "error_message")

_ROLE = click.option("--role", help="Of this role.")
_SINCE = click.option(
    "--since", type=Seconds(0, OLDEST), metavar="SECONDS", help="Only failures of the last so many seconds."
)


@command
@_ROLE
@_SINCE
@click.option("--state", type=click.Choice(verb.STATES), help="Only groups with this mark.")
@click.option("--limit", default=20, show_default=True, help="Groups.")
def list_(find: FindApp, /, role: str | None, since: float | None, state: str | None, limit: int) -> None:
    """Show the newest failures in groups of the same kind, the most frequent first."""
    with find().database.reading() as connection:
        page = insights.failures(connection, role=role, since=since, limit=limit, state=state)
    output.tell(page, _lines(page))


@command
@click.argument("fingerprint")
@_ROLE
@click.option("--limit", default=50, show_default=True)
@click.option("--before", type=int, help="The last id of the page before.")
def tasks(find: FindApp, /, fingerprint: str, role: str | None, limit: int, before: int | None) -> None:
    """List all tasks of a group, newest first."""
    with find().database.reading() as connection:
        page = insights.failed_tasks(connection, fingerprint, role=role, limit=limit, after=before)
    more = [f"there may be more with --before {page.next}"] if page.next else []
    output.tell(page, [*output.table(page.items, _TASKS), *more])


@command
@click.argument("fingerprint")
@click.argument("state", type=click.Choice(verb.STATES))
@click.option("--note", default="", help="A note for the next person who sees it.")
def mark(find: FindApp, /, fingerprint: str, state: str, note: str) -> None:
    """Mark a group as known, resolved, or open again. A resolved one opens by itself when it fails again."""
    app = find()
    with app.database.reading() as connection:
        insights.failing(connection, fingerprint, most=1)
    with app.database.transaction() as connection:
        change = verb.mark(connection, fingerprint, state, by=output.by(), note=note)
    output.tell(change, f"{fingerprint} is {state}")


def _lines(page: Failures) -> Iterator[str]:
    rows = [
        {
            "fingerprint": group.fingerprint, "state": group.mark.state, "count": group.count,
            "last_hour": group.last_hour, "retrying": group.retrying or None, "role": group.role,
            "message": group.message, "where": group.frame, "first_seen": group.first_seen,
            "last_seen": group.last_seen, "accounts": group.accounts_in_all or None, "task": group.tasks[0],
        }
        for group in page.groups
    ]  # fmt: skip
    yield from output.table(rows, _COLUMNS)
    left = page.groups_in_all - len(page.groups)
    more = f"; {left:,} groups more with --limit" if left else ""
    older = "" if page.reached_end else "; there are older ones, which were not read"
    yield f"{page.looked_at:,} failures looked at, the newest{older}{more}"
