"""Tell the roles of Celery and the engine from users': surfaces leave them out while they have nothing to show."""

from __future__ import annotations

_PREFIXES = ("celery.", "celeriac.")


def is_built_in(role: str) -> bool:
    """Return whether no user has declared the role: `celery.map` and its like."""
    return role.startswith(_PREFIXES)
