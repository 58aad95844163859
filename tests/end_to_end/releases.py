"""A small application in two releases, `RELEASE=old` and `RELEASE=new`; the table `ran` has each run of a task."""

from __future__ import annotations

import os
import time
from typing import Any

from sqlalchemy import text

from celeriac import Celeriac


def declare(app: Celeriac, release: str) -> dict[str, Any]:
    """The new one has renamed `webhook` to `hooks`, gives `price` another parameter and lets a new role follow it."""
    plain: dict[str, Any] = {"shared": False, "bind": True, "chunk": 1, "keep": "forever"}

    def tell(task: Any) -> None:
        row = {"id": task.request.id, "role": task.request.task, "pid": os.getpid(), "what": release}
        with app.database.statement() as connection:
            connection.execute(text("INSERT INTO ran (task_id, role, pid, what) VALUES (:id, :role, :pid, :what)"), row)
        time.sleep(0.01)

    if release == "old":

        @app.task(role="webhook", **plain)
        def webhook(self: Any, shop: int) -> None:
            tell(self)

        @app.task(role="price", lock_by="shop", **plain)
        def price(self: Any, shop: int) -> int:
            tell(self)
            return shop

        return {"price": price, "webhook": webhook}

    @app.task(role="hooks", aliases=("webhook",), **plain)
    def hooks(self: Any, shop: int) -> None:
        tell(self)

    @app.task(role="journal", **plain)
    def journal(self: Any, shop: int) -> None:
        tell(self)

    @app.task(role="price", lock_by="shop", **plain)
    def price_in(self: Any, shop: int, currency: str = "EUR") -> int:
        tell(self)
        journal.delay(shop)
        return shop

    return {"price": price_in, "webhook": hooks}


if "RELEASE" in os.environ:
    app = Celeriac("releases")
    declare(app, os.environ["RELEASE"])
