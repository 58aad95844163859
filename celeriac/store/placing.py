"""Placing: the parts of a statement that put tasks whose time has come where they are looked for."""

from __future__ import annotations


def placed(of: str) -> str:
    """Tasks of that part with a lock key line up `behind` its head, the others are `ready`.

    `of` has their id, role, account, priority, due_at, lock_key and losses. The keys are to be looked at afterwards.
    """
    return f"""to_ready AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id, losses)
    SELECT (SELECT seg FROM celeriac.ring), role, account, priority, due_at, id, least(losses, 9) FROM {of}
    WHERE lock_key IS NULL
), to_behind AS (
    INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
    SELECT lock_key, priority, due_at, id, role, account FROM {of} WHERE lock_key IS NOT NULL
)"""
