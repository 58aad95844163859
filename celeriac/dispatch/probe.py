"""Probe: what Redis says of tickets, for whoever explains why a task waits. It is asked briefly, and may not answer."""

from __future__ import annotations

from celeriac.dispatch.keys import ticket_key
from celeriac.dispatch.publish import Publisher


class Probe:
    """A `celeriac.insights.Broker`, on the publisher's connection and breaker: a dead Redis is asked each few seconds.

    `republish_after` (seconds): a ticket that lies in no queue for so long counts as lost.
    """

    def __init__(self, publisher: Publisher, republish_after: float) -> None:
        self._publisher = publisher
        self._republish_after = republish_after

    @property
    def republish_after(self) -> float:
        return self._republish_after

    @property
    def has_redis(self) -> bool:
        return self._publisher.has_redis

    def answers(self) -> bool:
        return self._publisher.answers()

    def has(self, queue: str, token: str) -> bool | None:
        """Whether this ticket lies in its queue; None if Redis does not say."""
        tokens = self._publisher.queued(queue, [token])
        return None if tokens is None else token in tokens

    def length(self, queue: str) -> int | None:
        """How many tickets and kicks lie there; None if Redis does not say."""
        length: int | None = self._publisher.ask(lambda client: client.llen(ticket_key(queue)))
        return length
