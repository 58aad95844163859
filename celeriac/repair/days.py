"""Days of history that are over: count what each has once, and then add what is written there later."""

from __future__ import annotations

from sqlalchemy import text

from celeriac.repair.batch import BATCH
from celeriac.store.connections import Database

#: How many days a sweep closes at most: each is read once.
MOST = 30

BEGIN_CLOSING = text("SELECT celeriac.begin_closing()")
CLOSE = text("SELECT celeriac.close_days(:most)")
FOLD = text("SELECT celeriac.fold_days(:most)")


def tell(database: Database) -> None:
    """Close the days that are over, and fold what has changed in others."""
    with database.statement() as connection:
        connection.execute(BEGIN_CLOSING)
    for _ in range(MOST):
        with database.statement() as connection:
            if not connection.execute(CLOSE, {"most": 1}).scalar_one():
                break
    fold(database)


def fold(database: Database) -> None:
    """Add what was written to closed days since to what is told of them."""
    while True:
        with database.statement() as connection:
            if connection.execute(FOLD, {"most": BATCH}).scalar_one() < BATCH:
                return
