"""What happened in the shop: a line of JSON for each event, whichever process it happened in."""

from __future__ import annotations

import json
import os

from shop import settings


def write(event, **what):
    line = json.dumps({"event": event, "pid": os.getpid(), **what}, default=str)
    with (settings.HOME / "journal").open("a") as journal:
        journal.write(f"{line}\n")


def read(*events, **having):
    """The events of these names, in their order, that have these values."""
    path = settings.HOME / "journal"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [
        line
        for line in lines
        if (not events or line["event"] in events) and all(line.get(k) == v for k, v in having.items())
    ]
