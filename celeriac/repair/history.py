"""History's partitions, one a day, made ahead of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.repair.brief import briefly
from celeriac.store.migrate import ADD_DAYS, BEGIN_DAY, DAYS_AHEAD

if TYPE_CHECKING:
    from celeriac.app import Celeriac


def add_days(app: Celeriac) -> int:
    """Make history's partitions for the coming days and record the first id of a new day."""
    with app.database.transaction() as connection:
        connection.execute(BEGIN_DAY)
    return briefly(app.database, _add_days)


def _add_days(connection: Connection) -> int:
    return int(connection.execute(text(ADD_DAYS), {"days": DAYS_AHEAD}).scalar_one())
