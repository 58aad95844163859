"""Resume: roles that were paused for a limited time run again once it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from celeriac.app import Celeriac

RESUME = text("""
UPDATE celeriac.roles SET paused = false, paused_until = NULL, updated_at = clock_timestamp()
WHERE role IN (
    SELECT role FROM celeriac.roles WHERE paused AND paused_until <= clock_timestamp() ORDER BY role
    FOR UPDATE SKIP LOCKED)
RETURNING role
""")


def resume_due(app: Celeriac) -> int:
    """Resume roles whose pause is over. The audit trail shows who paused each, and until when."""
    with app.database.transaction() as connection:
        roles = list(connection.execute(RESUME).scalars())
    app.kick(roles)
    return len(roles)
