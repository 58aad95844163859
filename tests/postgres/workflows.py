"""Workflows run to their end in this process, a ticket at a time, without Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery

from celeriac import Celeriac
from celeriac.run.arrive import run_ticket
from celeriac.store import look

Ran = list[tuple[Any, ...]]


def declare(app: Celeriac, **options: Any) -> dict[str, Any]:
    """Tasks of one role each that say in `ran` what they did, by their names; `options` are the roles'."""
    ran: Ran = []
    usual = {"prompt": False, "chunk": 500, "shared": False} | options

    @app.task(role="add", **usual)
    def add(x: int, y: int) -> int:
        ran.append(("add", x, y))
        return x + y

    @app.task(role="total", **usual)
    def total(numbers: list[int]) -> int:
        ran.append(("total", *numbers))
        return sum(numbers)

    @app.task(role="fail", **usual)
    def fail(*_: Any) -> None:
        ran.append(("fail",))
        raise ValueError("on purpose")

    @app.task(role="told", **usual)
    def told(task_id: str) -> None:
        ran.append(("told", task_id))

    app.register_roles()
    return {"add": add, "total": total, "fail": fail, "told": told, "ran": ran}


def run_once(app: Celeriac) -> bool:
    """A pass of each role, and the first of its tickets; whether there was one."""
    done = [run_ticket(app, declared.role.name, [], "") for declared in app.roles.all()]
    return any(result.get("ran") for result in done)


def run_all(app: Celeriac, before: Callable[[], object] = lambda: None) -> None:
    """Until nothing is left to run. `before` is called before each round."""
    before()
    while run_once(app):
        before()


def look_once(app: Celery) -> None:
    """A worker's look."""
    with app.database.transaction() as connection:
        look.look(connection)
