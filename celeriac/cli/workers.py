"""Workers: show them, decommission one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from celeriac import insights
from celeriac.cli import output
from celeriac.cli.group import FindApp, command
from celeriac.insights import Count, Sample
from celeriac.insights.fleet.resources import percent
from celeriac.operate.workers import decommission as ask_to_end
from celeriac.operate.workers import resume as let_go_on
from celeriac.store.states import GONE

_COLUMNS = (
    "worker_id", "hostname", "pid", "version", "status", "started", "concurrency", "tasks", "done", "heartbeat",
    "memory", "cpu", "backs_off", "queues",
)  # fmt: skip

_MINUTE = ("minute", "memory", "cpu", "backs_off")


@command
def list_(find: FindApp, /) -> None:
    """List workers: those that report, and those that did lately."""
    with find().database.reading() as connection:
        rows = insights.workers(connection)
        done = insights.done_by_worker(connection)
    rows = [row | {"done_last_hour": done.get(row["worker_id"], Count(0))} for row in rows]
    output.tell(rows, [*output.table([row | _shown(row) for row in rows], _COLUMNS), *_all_gone(rows)])


def _all_gone(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line if the whole fleet is gone: unlike an empty list, that is an error."""
    since = insights.all_gone(rows)
    return [] if since is None else [f"all are gone, the last was heard {output.age(since)} ago: nothing runs"]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    used = row["resources"]
    backs_off = used.get("backoff_reason") or "yes" if used.get("is_backing_off") else None
    is_gone = row["status"] != "stopped" and row["heartbeat_age"] > GONE
    return {
        "status": "gone" if is_gone else row["status"],
        "heartbeat": output.age(row["heartbeat_age"]), "tasks": len(row["task_ids"]), "backs_off": backs_off,
        "memory": _percent(used.get("memory_percent")), "cpu": _percent(used.get("cpu_percent")),
        "started": row["started_at"], "done": output.count(row["done_last_hour"]),
    }  # fmt: skip


def _percent(figure: Any) -> str | None:
    """Format a percentage; a worker in another language may report anything."""
    return None if (share := percent(figure)) is None else f"{share:.0f}%"


@command
@click.argument("worker_id")
def hour(find: FindApp, /, worker_id: str) -> None:
    """Show what a worker used and when it backed off, minute by minute."""
    with find().database.reading() as connection:
        samples = insights.worker_hour(connection, worker_id)
    output.tell(samples, output.table([_minute(one) for one in samples], _MINUTE))


def _minute(one: Sample) -> dict[str, Any]:
    memory, cpu = _percent(one.memory_percent), _percent(one.cpu_percent)
    return {"minute": one.minute, "memory": memory, "cpu": cpu, "backs_off": one.backoff_reason}


@command
@click.argument("worker_id")
@click.option("--why", default="", help="For the audit trail.")
def decommission(find: FindApp, /, worker_id: str, why: str) -> None:
    """Request a worker to take nothing more, finish its tasks, and end; its next heartbeat reads that."""
    with find().database.transaction() as connection:
        change = ask_to_end(connection, worker_id, by=output.by(), why=why)
    output.tell(change, f"{worker_id} is to end")


@command
@click.argument("worker_id")
@click.option("--why", default="", help="For the audit trail.")
def resume(find: FindApp, /, worker_id: str, why: str) -> None:
    """Withdraw a decommission that the worker has not read yet."""
    with find().database.transaction() as connection:
        change = let_go_on(connection, worker_id, by=output.by(), why=why)
    output.tell(change, f"{worker_id} goes on")
