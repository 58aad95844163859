"""Which way an application's `priority=` means: rows keep the engine's order, in which the highest goes first.

On Redis Celery's lowest goes first, on RabbitMQ the highest. What is said of a priority in Celery's words (options of
calls and tasks, `task_default_priority`, routes, annotations, entries of `beat_schedule`, messages that are adopted) is
translated here alone; what is the engine's own (HTTP, command line, SQL, `app.prioritise`) speaks of rows.
"""

from __future__ import annotations

import logging
from typing import Any, Literal, get_args

from celeriac.errors import BadArguments, ConfigurationError
from celeriac.roles.bounds import outside
from celeriac.roles.role import Role

logger = logging.getLogger(__name__)

Order = Literal["celeriac", "rabbitmq", "redis"]

ORDERS: tuple[Order, ...] = get_args(Order)

#: How an app says which it means.
TO_SAY = "say priority_order='redis' (the lowest first), 'rabbitmq' or 'celeriac' (the highest) where the app is made"


class Priorities:
    """Priorities by an app's `order`; None: nobody has said which, and the highest goes first."""

    def __init__(self, order: Order | None = None) -> None:
        if order is not None and order not in ORDERS:
            raise ConfigurationError(f"priority_order={order!r:.100}: give one of {', '.join(map(repr, ORDERS))}")
        self.order = order
        self._has_warned = False

    @property
    def is_unsaid(self) -> bool:
        return self.order is None

    def turned(self, priority: Any) -> Any:
        """As rows have it, from as it is said; and the other way round. Anything but a whole number stays as it is."""
        return -priority if self.order == "redis" and type(priority) is int else priority

    def turned_range(self, bounds: Any) -> Any:
        """The same of a role's `priority_range`."""
        is_pair = isinstance(bounds, tuple) and len(bounds) == 2
        return tuple(map(self.turned, bounds[::-1])) if is_pair and self.order == "redis" else bounds

    def of_call(self, role: Role, priority: Any) -> Any:
        """What a call says. Warns once where nobody has said which way it means.

        Raises BadArguments, in the caller's own numbers, for one outside the role's range.
        """
        if priority is None:
            return None
        stored = self.turned(priority)
        if self.order is None and stored != role.priority and not self._has_warned:
            self._has_warned = True
            logger.warning("priority=%r of a call of %s: the highest goes first; %s", priority, role.name, TO_SAY)
        if stored != priority and (right := outside(self.turned_range(role.priority_range), priority)):
            raise BadArguments(f"{role.name}: priority={priority}: give {right}; nothing was written")
        return stored

    def of_message(self, role: Role, said: int) -> int:
        """What a plain app's message says, within the role's range. 0 is in every message whose call says none.

        Where nobody has said which way it means, it comes from Redis, where 0 is the most urgent: what is said then is
        how far below its role's own.
        """
        if not said:
            return role.priority
        lowest, highest = role.priority_range
        wanted = role.priority - said if self.order in (None, "celeriac") else self.turned(said)
        return max(lowest, min(wanted, highest))
