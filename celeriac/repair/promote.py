"""Promotion of rows whose time has come, in every role."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from celeriac.dispatch import promote
from celeriac.repair.batch import BATCH

if TYPE_CHECKING:
    from celeriac.app import Celeriac


def promote_due(app: Celeriac) -> int:
    """Make due tasks ready, delayed or retrying, and wake prompt roles up for theirs."""
    return promote_by_role(app).total()


def promote_by_role(app: Celeriac) -> Counter[str]:
    """Promote due tasks and return how many of each role."""
    with app.database.statement() as connection:
        names = promote.roles_with_due(connection)
    return Counter({name: _promote_role(app, name) for name in names})


def _promote_role(app: Celeriac, name: str) -> int:
    role, _ = app.role_declared(name)
    done = 0 if role.prompt else app.dispatcher.resume(role, BATCH)
    while True:
        with app.database.transaction() as connection:
            promoted = promote.promote_due(connection, name, BATCH).count
        done += promoted
        if promoted < BATCH:
            app.kick([name])
            return done
