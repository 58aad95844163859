"""The first steps in a system in which nothing has run yet, each with its command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from celeriac.dashboard.page import Page
from celeriac.dashboard.reading import Content
from celeriac.insights.fleet.one_role import parameters, registered
from celeriac.store.shell import argument, word


@dataclass(frozen=True, slots=True)
class FirstStep:
    """A step. `does`: an imperative, for the page; `command`: a command for it."""

    does: str
    command: str
    is_done: bool


def first_steps(page: Page, counts: Content, workers: Content) -> list[FirstStep]:
    """Return the steps; none once a task was enqueued, or if that is unknown. `workers`: all that have reported."""
    if counts.stopped or workers.stopped or any(count.n for count in counts.value.values()):
        return []
    served = page.panel(_parameters)
    if served.stopped:
        return []
    return steps(page.celeriac.main or "tasks", served.value, has_worker=bool(workers.value))


def steps(app: str, required: Mapping[str, Sequence[str]], *, has_worker: bool) -> list[FirstStep]:
    """Return the steps of an app without tasks. `required`: by registered role, the arguments that a task needs."""
    role = min(required, default="")
    arguments = [f"{name}=1" for name in required.get(role, ())]
    enqueue = " ".join(["celeriac tasks enqueue", argument(role), *map(word, arguments)])
    return [
        FirstStep("declare a role: put `@app.task` above a function", "celeriac migrate", bool(required)),
        FirstStep("start a worker", f"celery -A {app} worker", has_worker),
        FirstStep("enqueue a task", enqueue if role else "resync.delay(store_id=7)", False),
    ]


def _parameters(connection: Connection) -> dict[str, list[str]]:
    """Return the required parameters of the first registered role, if there is one."""
    return {
        role: [one.name for one in parameters(connection, role) if one.required]
        for role in registered(connection)[:1]
    }  # fmt: skip
