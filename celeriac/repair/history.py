"""History's partitions, a day each, made ahead of their days."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.repair.brief import briefly
from celeriac.store.migrate import ADD_DAYS, DAYS_AHEAD

if TYPE_CHECKING:
    from celeriac.app import Celeriac


def add_days(app: Celeriac) -> int:
    """Partitions of history for the days to come; how many were made."""
    return briefly(app.database, _add_days)


def _add_days(connection: Connection) -> int:
    return int(connection.execute(text(ADD_DAYS), {"days": DAYS_AHEAD}).scalar_one())
