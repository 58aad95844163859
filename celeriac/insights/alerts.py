"""What fires."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

FIRING = text("""
SELECT name, subject, value, threshold, firing_since, last_seen_at FROM celeriac.alerts
ORDER BY firing_since, name, subject
""")


def firing(connection: Connection) -> list[dict[str, Any]]:
    """What fires, as the last review saw it, the oldest first."""
    return [dict(row) for row in connection.execute(FIRING).mappings()]
