"""The conditions that narrow a list of tasks, for command line, API and dashboard; and ranges as their values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from celeriac.errors import BadValue

#: The form of a range: up to seven digits at each end, as priorities have.
RANGE = r"^(-?[0-9]{1,7}(\.\.(-?[0-9]{1,7})?)?|\.\.-?[0-9]{1,7})$"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a list. `name`: the field of `Filter` and of the API; with dashes, the command line's option.
    `page`: its word on the dashboard. `help`: its meaning. `sql`: the same on `worker_tasks`, with `{}` for the value.
    """

    name: str
    page: str
    help: str
    sql: str

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"


CONDITIONS: Final = (
    Condition("status", "state", "In this status: ours, or another system's word.", "status IN {}"),
    Condition("role", "role", "Of this role.", "role = {}"),
    Condition("account", "account", "Of this account.", "account = {}"),
    Condition("lock_key", "lock", "With this lock key.", "lock_key = {}"),
    Condition("unique_key", "unique", "With this unique key.", "unique_key = {}"),
    Condition("worker_id", "worker", "Held by this worker.", "worker_id = {}"),
    Condition(
        "waits_for", "waits", "Waits for time, lock, account or members; nothing: it may start now.",
        "waits_for IS NOT DISTINCT FROM nullif({}, 'nothing')",
    ),
    Condition("priority", "priority", "50.., ..10, 50..70, or one number.", "int4range({}) @> priority"),
    Condition(
        "schedule", "schedule", "Made by this schedule's ticks.",
        "starts_with(task_id, {0} || '@') AND strpos(substr(task_id, length({0}) + 2), '@') = 0",
    ),
    Condition("error", "error", "Whose last error has this in it.", "strpos(error_message, {}) > 0"),
    Condition(
        "newer_than", "newer", "Enqueued at most so many seconds ago.",
        "created_at >= now() - {} * interval '1 second'",
    ),
    Condition(
        "older_than", "older", "Enqueued at least so many seconds ago.",
        "created_at <= now() - {} * interval '1 second'",
    ),
    Condition("queue", "queue", "Of this queue of its role.", "queue = {}"),
)  # fmt: skip

#: The reasons a task may wait; `nothing`: it may start now.
Waits = Literal["time", "lock", "account", "members", "nothing"]
WAITS: Final = get_args(Waits)

#: The meaning of each, by its name.
MEANS: Final = {one.name: one.help for one in CONDITIONS}


def ends(name: str, value: str | None) -> tuple[int | None, int | None]:
    """Return the lowest and the highest number, in either order given; None for an open end. Raises BadValue."""
    if value is None:
        return None, None
    if not re.fullmatch(RANGE, value, re.ASCII) or "\n" in value:
        raise BadValue(f"{name}={value!r:.50}: give a range like 50.., ..10 or 50..70, or one whole number")
    first, _, last = value.partition("..")
    if ".." not in value:
        return int(first), int(first)
    low, high = (int(end) if end else None for end in (first, last))
    return (high, low) if low is not None and high is not None and low > high else (low, high)
