"""SQL routines beside the tables: for the verbs, and for whoever has psql and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

#: The scripts, each after those it needs.
NAMES = (
    "ids", "history", "hand_over", "barriers", "leases", "release", "rooms", "worker_tasks", "cancel", "arguments",
    "enqueue", "policies", "audit", "limits", "schedules", "window", "backlog", "rests",
)  # fmt: skip


def scripts() -> Iterator[str]:
    """Yield the scripts; each can be applied again and again."""
    for name in NAMES:
        yield (Path(__file__).parent / f"{name}.sql").read_text()
