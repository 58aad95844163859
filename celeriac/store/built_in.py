"""Which roles are Celery's own or the engine's: surfaces leave them out while there is nothing to tell of them."""

from __future__ import annotations

_PREFIXES = ("celery.", "celeriac.")


def is_built_in(role: str) -> bool:
    """Whether no user has declared it: `celery.map` and its like."""
    return role.startswith(_PREFIXES)
