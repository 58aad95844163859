"""The window: how many tasks of a role may be claimed or running at once, and when a pass pays. Pure.

A new account waits for what is claimed and has not begun. So a role without a window of its own claims what its slots
run now and what they will begin within about a second, by its measured seconds per task.
`celeriac.window_of` (store/routines/window.sql) is the same rule in SQL.
"""

from __future__ import annotations

import math

from celeriac.roles.role import WIDEST, Role

#: A task that was lost this often shares no ticket.
SUSPECT = 2

#: A window by measure holds what the slots begin within this time (seconds).
AHEAD = 1.0

#: Number of tasks that a role claims if their duration is unknown, or if no worker serves it.
FIRST = 8


def ahead(role: Role) -> float:
    """Return the seconds of work that are claimed in advance; where beat alone dispatches, until its next pass."""
    return AHEAD if role.prompt else AHEAD + role.every


def window(role: Role, slots: int, seconds_per_task: float | None) -> int:
    """Return how many tasks of a role may be claimed or running at once.
    `slots`: processes of live workers that serve it.
    """
    if role.window is not None:
        return role.window
    if seconds_per_task is None:
        return max(2 * slots, FIRST)
    if not slots:
        return FIRST
    return max(slots, min(WIDEST, math.ceil(slots * (1 + ahead(role) / max(seconds_per_task, 1e-6)))))


def refill_below(role: Role, slots: int, seconds_per_task: float | None) -> int:
    """Return the number of active tasks below which a pass pays at once: then a quarter of the window is free, or, in a
    window by measure, a quarter of what it holds beyond the slots. If the role has had neither ticket nor pass for a
    while (`room.QUIET`), one free place is enough.
    """
    size = window(role, slots, seconds_per_task)
    spare = size if role.window is not None else max(4, size - slots)
    return size - spare // 4


def may_claim(role: Role, active: int, slots: int, seconds_per_task: float | None) -> int:
    """Return how many tasks a pass may claim for a role with so many active ones; zero or less if its window is
    full.
    """
    return min(
        role.batch_size, window(role, slots, seconds_per_task) - active, first_steps(role, slots, seconds_per_task)
    )


def first_steps(role: Role, slots: int, seconds_per_task: float | None) -> int:
    """Return how many tasks a pass may claim of a role that sizes tickets by measure and has no measure yet: a few, and
    the rest as they settle.
    """
    if role.chunk == "auto" and role.prompt and seconds_per_task is None:
        return max(2 * slots, FIRST)
    return role.batch_size
