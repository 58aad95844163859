"""Compute how long a role waits for its turn at slots that it shares with others: the queues of a worker take turns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, text

# Reads each role that holds something: see `held_since` in dispatch/select.py.
AT_WORK = text("""
SELECT r.role, coalesce(r.definition ->> 'queue', r.role) AS queue, b.seconds_per_task AS seconds
FROM celeriac.roles r CROSS JOIN LATERAL celeriac.batcher(r.role) AS b
WHERE b.seconds_per_task > 0 AND (
    SELECT true FROM celeriac.tickets
    WHERE role = r.role AND claimed_at >= coalesce(b.held_since, '-infinity') ORDER BY role, claimed_at LIMIT 1)
""")

SERVING = text("""
SELECT queues, concurrency FROM celeriac.workers WHERE status = 'active' AND celeriac.is_heard(last_heartbeat_at)
""")


@dataclass(frozen=True, slots=True)
class AtWork:
    """A role that holds something, its queue, and the seconds of one of its tasks."""

    role: str
    queue: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Serving:
    """A live worker's queues and slots."""

    queues: Collection[str]
    slots: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A queue's turn: seconds that one of its starts waits for starts of other queues at its `slots`."""

    seconds: float
    slots: int

    def wait(self, window: int) -> float:
        """Return the seconds a new task waits for other queues if `window` tasks of its role may be held at once."""
        return self.seconds * max(1, window - self.slots)


def turns(connection: Connection) -> Mapping[str, Turn]:
    """Return the turn of each queue that shares workers with work of other queues."""
    at_work = [AtWork(*row) for row in connection.execute(AT_WORK)]
    return turn_of_each(at_work, [Serving(*row) for row in connection.execute(SERVING)]) if at_work else {}


def turn_of_each(at_work: Iterable[AtWork], serving: Iterable[Serving]) -> dict[str, Turn]:
    """Return each queue's turn. Between two of its starts at a worker, each other queue of that worker may have one,
    and a slot becomes free there every `seconds` / slots. A queue does not wait if some worker serves it alone. Pure.
    """
    longest: dict[str, float] = {}
    for one in at_work:
        longest[one.queue] = max(longest.get(one.queue, 0.0), one.seconds)
    slots: Counter[str] = Counter()
    starts: dict[str, float] = {}
    for worker in serving:
        for queue in worker.queues if worker.slots else ():
            others = sum(longest.get(other, 0.0) for other in {*worker.queues} - {queue})
            slots[queue] += worker.slots
            starts[queue] = starts.get(queue, 0.0) + (worker.slots / others if others else math.inf)
    return {queue: Turn(1 / each, slots[queue]) for queue, each in starts.items() if each < math.inf}
