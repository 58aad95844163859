"""Figures and records: how many workers are needed, how tasks end, what was reviewed, and who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from celeriac import insights
from celeriac.cli import output
from celeriac.cli.group import FindApp, Seconds, command
from celeriac.errors import Unknown
from celeriac.insights.history.trail import Of, trail

_CAPACITY = (
    "role", "pending", "ready", "claimed", "running", "completed_1_h", "failed_1_h", "workers", "seconds",
    "per_worker_h", "hours_to_drain", "for_1_h", "for_4_h", "for_8_h",
)  # fmt: skip
_METRICS = (
    "role", "queue_depth", "success_rate", "retry_rate", "retry_success_rate", "average_wait", "average_run",
    "longest_running",
)  # fmt: skip
_REVIEWS = ("role", "state", "reviewed_at", "reviewed_by", "active", "ready", "due", "rescued", "removed", "promoted")
_AUDIT = ("id", "at", "by", "action", "kind", "target", "before", "after", "why", "via")


@command
@click.argument("role", required=False)
def capacity(find: FindApp, /, role: str | None) -> None:
    """Show what each role has to do, how fast it goes, and how many workers clear it in 1, 4 and 8 hours."""
    with find().database.statement() as connection:
        rows = insights.capacity(connection, role)
    _refuse_unknown(role, rows)
    output.tell(rows, output.table([_capacity(row) for row in rows], _CAPACITY))


@command
@click.argument("role", required=False)
def metrics(find: FindApp, /, role: str | None) -> None:
    """Show each role's queue, and the last hour's success and retry rates, waits and run times."""
    with find().database.statement() as connection:
        rows = insights.metrics(connection, role)
    _refuse_unknown(role, rows)
    output.tell(rows, output.table([_rates(row) for row in rows], _METRICS))


def _refuse_unknown(role: str | None, rows: Sequence[Any]) -> None:
    if role is not None and not rows:
        raise Unknown(f"there is no role {role!r}")


@command
@click.argument("role", required=False)
def reviews(find: FindApp, /, role: str | None) -> None:
    """Show the state of each role's queue at the Queue Master's last review."""
    with find().database.reading() as connection:
        rows = insights.reviews(connection, role)
    if role is not None and not rows:
        raise Unknown(f"no review of a role {role!r} yet: see `celeriac sweep review`")
    output.tell(rows, output.table([row | row["found"] for row in rows], _REVIEWS))


@command
@click.option("--by", help="Only changes by this operator, token or login.")
@click.option("--via", help="Only changes through this surface: API, dashboard, command line, application or SQL.")
@click.option("--action", help="Only this action: retry, pause, …")
@click.option("--kind", help="Only changes of this kind of target: task, role, account, schedule, token or worker.")
@click.option("--target", help="Only changes of this target: a task's row id, a role, an account, …")
@click.option("--newer-than", type=Seconds(0, 1e9), metavar="SECONDS", help="Only changes of the last so many seconds.")
@click.option("--limit", default=20, show_default=True)
@click.option("--before", type=int, help="The last id of the page before.")
def audit(find: FindApp, /, limit: int, before: int | None, **wanted: Any) -> None:
    """Show who changed what, newest first."""
    with find().database.reading() as connection:
        page = trail(connection, Of(**wanted), limit=limit, after=None if before is None else str(before))
    more = [f"there may be more with --before {page.next}"] if page.next else []
    output.tell(page.items, [*output.table(page.items, _AUDIT), *more])


def _rates(row: dict[str, Any]) -> dict[str, Any]:
    rates = {name: share for name, share in row.items() if name.endswith("_rate") and share is not None}
    return row | {name: f"{share:.0%}".replace("%", " %") for name, share in rates.items()}


def _capacity(row: dict[str, Any]) -> dict[str, Any]:
    needed, more = row["workers_needed"], "+" if row["at_least"] else ""
    return {
        "role": row["role"], "pending": _or_more(row["pending_tasks"], more),
        "ready": _or_more(row["ready_tasks"], more),
        "claimed": row["claimed_tasks"], "running": row["running_tasks"], "completed_1_h": row["completed_last_hour"],
        "failed_1_h": row["failed_last_hour"], "workers": row["active_workers"], "seconds": row["avg_duration_sec"],
        "per_worker_h": _whole(row["tasks_per_worker_hour"]),
        "hours_to_drain": _or_more(row["estimated_hours_to_drain"], more),
        "for_1_h": _or_more(needed["for_1_hour"], more), "for_4_h": _or_more(needed["for_4_hours"], more),
        "for_8_h": _or_more(needed["for_8_hours"], more),
    }  # fmt: skip


def _whole(figure: float | None) -> str | None:
    """Format with three significant digits, such as 52,000,000: means give no more."""
    return None if figure is None else f"{float(f'{figure:.3g}'):,.0f}" if figure >= 100 else f"{figure:.1f}"


def _or_more(figure: float | None, more: str) -> float | str | None:
    return f"{figure}{more}" if more and figure is not None else figure
