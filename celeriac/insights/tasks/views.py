"""Saved views of the list of tasks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

VIEWS = text("""
SELECT owner, name, filter, saved_at FROM celeriac.saved_views
WHERE owner = ANY (CAST(:owners AS text[])) ORDER BY owner = '' DESC, name
""")


def saved_views(connection: Connection, owner: str) -> list[dict[str, Any]]:
    """Return the shared views (their `owner` is empty), and the owner's own."""
    return [dict(row) for row in connection.execute(VIEWS, {"owners": ["", owner]}).mappings()]
