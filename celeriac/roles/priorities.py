"""Translate an application's priorities: rows keep the engine's order, in which the highest goes first.

With Celery on Redis the lowest goes first, on RabbitMQ the highest. Priorities in Celery's options (of calls and tasks,
`task_default_priority`, routes, annotations, entries of `beat_schedule`, adopted messages) are translated here and
nowhere else. The engine's own surfaces (HTTP, command line, SQL, `app.prioritise`) use those of rows.
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

#: The advice to an app that has not set its order.
TO_SAY = "say priority_order='redis' (the lowest first), 'rabbitmq' or 'celeriac' (the highest) where the app is made"


class Priorities:
    """Priorities in an app's `order`; None: the app sets none, and the highest goes first."""

    def __init__(self, order: Order | None = None) -> None:
        if order is not None and order not in ORDERS:
            raise ConfigurationError(f"priority_order={order!r:.100}: give one of {', '.join(map(repr, ORDERS))}")
        self.order = order
        self._has_warned = False

    @property
    def is_unsaid(self) -> bool:
        return self.order is None

    def turned(self, priority: Any) -> Any:
        """Translate a priority to a row's, or back. Anything but a whole number stays as it is."""
        return -priority if self.order == "redis" and type(priority) is int else priority

    def turned_range(self, bounds: Any) -> Any:
        """Translate a role's `priority_range` in the same way."""
        is_pair = isinstance(bounds, tuple) and len(bounds) == 2
        return tuple(map(self.turned, bounds[::-1])) if is_pair and self.order == "redis" else bounds

    def of_call(self, role: Role, priority: Any) -> Any:
        """Return the row's priority for a call's. Warns once if the app has not set its order. Raises BadArguments, in
        the caller's own numbers, for a priority outside the role's range.
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
        """Return the row's priority for a plain app's message, within the role's range. A message whose call sets none
        has 0.

        If this app has not set its order, the message is from Celery on Redis, where 0 is the most urgent: its priority
        is then how far the row's is below the role's own.
        """
        if not said:
            return role.priority
        lowest, highest = role.priority_range
        wanted = role.priority - said if self.order in (None, "celeriac") else self.turned(said)
        return max(lowest, min(wanted, highest))
