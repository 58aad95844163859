"""Recover: release the tasks of silent or dead workers now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import FindApp, Seconds, command
from celeriac.insights.fleet.condition import silent_workers
from celeriac.repair.rescue import rescue_by_role
from celeriac.repair.worker import LIVES, held, rescue_worker
from celeriac.store.shell import argument
from celeriac.store.states import GONE


@command
@click.argument("worker", required=False)
@click.option(
    "--silent",
    type=Seconds(1, 1e9),
    metavar="SECONDS",
    help="How long they have been silent; by default 60 s for a WORKER, and each role's own limit for all.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--preview", is_flag=True, help="Count them, and change nothing.")
def recover(find: FindApp, /, worker: str | None, silent: float | None, yes: bool, preview: bool) -> None:
    """Release the tasks of a dead WORKER, or, if none is named, of every worker that fell silent."""
    app = find()
    n = _held(app, worker, silent)
    if preview or not n:
        output.tell({"tasks": n, "recovered": {}}, [f"{n:,} tasks", *_not_yet(app, worker, silent)])
        return
    if not yes:
        output.ask(f"recover {n:,} tasks of {worker or 'silent workers'}?")
    done = _recover(app, worker, silent)
    counts = ", ".join(f"{role}: {tasks:,}" for role, tasks in sorted(done.items()))
    output.tell({"tasks": n, "recovered": done}, f"{done.total():,} of {n:,} tasks recovered; {counts}".rstrip("; "))


def _held(app: Celeriac, worker: str | None, silent: float | None) -> int:
    with app.database.reading() as connection:
        if worker is not None:
            return held(connection, worker, silent=LIVES if silent is None else silent)
        return sum(one.tasks for one in silent_workers(connection, silent))


def _not_yet(app: Celeriac, worker: str | None, silent: float | None) -> Iterator[str]:
    """Yield workers that the doctor reports as silent, though not yet for as long as their tasks' roles allow."""
    if worker is not None or silent is not None:
        return
    with app.database.reading() as connection:
        counted = {one.worker_id: one.tasks for one in silent_workers(connection)}
        for one in silent_workers(connection, GONE):
            if more := one.tasks - counted.get(one.worker_id, 0):
                yield (
                    f"{more:,} more of {one.worker_id}, which is silent for {output.age(one.seconds)}: not for as long "
                    f"as their roles allow; if it is dead, run `celeriac workers recover {argument(one.worker_id)}`"
                )


def _recover(app: Celeriac, worker: str | None, silent: float | None) -> Counter[str]:
    if worker is not None:
        return rescue_worker(app.database, worker, silent=LIVES if silent is None else silent, operator=output.by())
    return rescue_by_role(
        app.database, app.process_name, minutes=None if silent is None else silent / 60, operator=output.by()
    )
