"""Notes when each handler begins and ends, on the database's clock (`celery worker --include demo.stores.witness`).

From inside the handler: its task's row is settled after that, so what overlaps here overlapped in earnest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from sqlalchemy import text

from celeriac.run import run as running
from tasks.app import app

ROLES = ("store_discovery", "entry_point_discovery", "product_discovery", "product_resync", "analytics_refresh")

NOW = text("SELECT clock_timestamp()")
RAN = text("INSERT INTO runs VALUES (:role, :store, :began, clock_timestamp())")


def witnessed(role: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(handler)
    def run(*args: Any, **kwargs: Any) -> Any:
        with app.database.statement() as connection:
            began = connection.execute(NOW).scalar_one()
        try:
            return handler(*args, **kwargs)
        finally:
            with app.database.statement() as connection:
                connection.execute(RAN, {"role": role, "store": store_of(kwargs), "began": began})

    return run


def store_of(kwargs: dict[str, Any]) -> str | None:
    """By its arguments, whatever lock it has; where they name none, by the lock; a task of no store has neither."""
    under_way = running.current()
    assert under_way is not None
    store = kwargs.get("dispensary_id")
    return under_way.task.lock_key if store is None else f"dispensary_id:{store}"


for name in ROLES:
    task = app.tasks[name]
    task.run = witnessed(name, task.run)
