"""Samples: a worker's use of memory and CPU, a row for each minute, so that an hour of it can be shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, text

# A minute has the figures of its first sample, or of the first in which the worker backed off.
SAMPLE = text("""
INSERT INTO celeriac.worker_samples (worker_id, minute, memory_percent, cpu_percent, backoff_reason)
VALUES (:worker_id, date_trunc('minute', clock_timestamp()), :memory, :cpu, :reason)
ON CONFLICT (worker_id, minute) DO UPDATE
SET backoff_reason = excluded.backoff_reason, memory_percent = excluded.memory_percent,
    cpu_percent = excluded.cpu_percent
WHERE worker_samples.backoff_reason IS NULL AND excluded.backoff_reason IS NOT NULL
""")

#: How many characters of a reason are kept.
LONGEST = 300


def sample(connection: Connection, worker_id: str, resources: Mapping[str, Any]) -> None:
    """Write a sample. `resources`: from the heartbeat; those of a worker in another language may be anything."""
    usage = {"memory": _percent(resources.get("memory_percent")), "cpu": _percent(resources.get("cpu_percent"))}
    connection.execute(SAMPLE, usage | {"worker_id": worker_id, "reason": backoff(resources)})


def backoff(resources: Mapping[str, Any]) -> str | None:
    """Return why the worker takes nothing new; None: it does not back off."""
    if not resources.get("is_backing_off"):
        return None
    return str(resources.get("backoff_reason") or "no reason told")[:LONGEST].replace("\x00", "")


def _percent(value: Any) -> float | None:
    """Return the value if it can be drawn, within bounds; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return round(min(max(float(value), 0.0), 1000.0), 1)
