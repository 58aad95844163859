"""Forecast how the waiting tasks are worked off, by the rates at which tasks come and end. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Number of points of a curve after the first; hours that it shows if its length is unknown, and at most.
POINTS, USUAL, LONGEST = 24, 8.0, 168.0


@dataclass(frozen=True, slots=True)
class Drain:
    """A forecast. Rates are tasks an hour, of all workers together. `lasts`: hours until nothing waits, None if that
    never happens. `needed`: workers to be done within the requested hours. `points`: hours from now, and what waits
    then.
    """

    arrival: float
    service: float
    lasts: float | None
    needed: int | None
    points: list[tuple[float, float]]


def drain(waiting: int, arrival: float, per_worker: float, workers: float, hours: float | None = None) -> Drain:
    """Forecast the queue. `per_worker`: tasks a worker does in an hour, above 0; `hours`: time to do it in, or None."""
    service = per_worker * workers
    gain = service - arrival
    lasts = 0.0 if not waiting else waiting / gain if gain > 0 else None
    needed = math.ceil((waiting / hours + arrival) / per_worker) if hours else None
    end = min(hours or (1.25 * lasts if lasts else USUAL), LONGEST)
    times = [end * n / POINTS for n in range(POINTS + 1)]
    return Drain(arrival, service, lasts, needed, [(at, max(0.0, waiting - gain * at)) for at in times])
