"""Looks for the next leader of a lock key."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

LEAD = text("SELECT celeriac_lead(CAST(:keys AS text[]))")


def lead(connection: Connection, keys: Sequence[str]) -> int:
    """Gives each of these lock keys its next leader, where it has none and somebody waits; how many got one."""
    if not keys:
        return 0
    return int(connection.execute(LEAD, {"keys": sorted(set(keys))}).scalar_one())
