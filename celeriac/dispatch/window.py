"""The window: how many tasks of a role may be claimed, and when a pass pays. Pure."""

from __future__ import annotations

from celeriac.roles.role import Role

#: A task that was lost so often shares no ticket.
SUSPECT = 2


def refill_below(role: Role) -> int:
    """A quarter of the window has to be free before a pass pays at once; a single slot, once the role has had
    neither ticket nor pass for a while (`room.QUIET`).
    """
    return role.window - role.window // 4


def may_claim(role: Role, active: int, slots: int, seconds_per_task: float | None) -> int:
    """How many a pass may claim, of a role with so many active tasks; zero or less if its window is full."""
    return min(role.batch_size, role.window - active, first_steps(role, slots, seconds_per_task))


def first_steps(role: Role, slots: int, seconds_per_task: float | None) -> int:
    """A role that sizes its tickets by measure starts with a few tasks; the rest follows as they settle."""
    if role.chunk == "auto" and role.prompt and seconds_per_task is None:
        return max(2 * slots, 8)
    return role.batch_size
