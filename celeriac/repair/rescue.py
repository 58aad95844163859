"""Rescue: running tasks whose worker fell silent are released."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.run.traces import spare_neighbours
from celeriac.settle import release
from celeriac.store.connections import Database
from celeriac.store.states import RUNNING

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Tickets released in one transaction.
TICKETS = 20


def rescue(app: Celeriac, *, minutes: float | None = None, operator: str | None = None) -> int:
    """Release running tasks whose worker has been silent for so many minutes, or for their role's `stale_after`. They
    wait out their backoff, or fail if they were lost too often. `operator`: who requested it, for the audit trail.
    """
    return rescue_by_role(app.database, app.process_name, minutes=minutes, operator=operator).total()


def rescue_by_role(
    database: Database, process: str, *, minutes: float | None = None, operator: str | None = None
) -> Counter[str]:
    """Release them and return how many of each role. `process`: named in their histories, if no operator requested
    this.
    """
    spare_neighbours(database)
    rescued: Counter[str] = Counter()
    while True:
        with database.transaction() as connection:
            tokens = release.stale(connection, TICKETS, minutes)
            freed = release.release(
                connection, tokens, started=True, kind="rescue", why="its worker fell silent",
                by=operator or process, loss=True,
            )  # fmt: skip
            if operator is not None:
                changes = [Change(str(f.id), {"status": RUNNING}, {"status": f.becomes}) for f in freed]
                audit.write(connection, "recover-stale", "task", changes, by=operator)
        rescued.update(f.role for f in freed)
        if len(tokens) < TICKETS:
            return rescued
