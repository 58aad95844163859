"""Former names of commands, whose refusals show the present names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_TABLE = """
account         accounts set
alert           alerts
alerts          alerts list
bulk ask        tasks retry --later | tasks cancel --later | tasks prioritise --later
bulk            bulks
cancel          tasks cancel
capacity        roles capacity
decisions       roles decisions
dispatch        roles dispatch
edit            tasks edit
enqueue         tasks enqueue
enqueuer        logins
failures retry  tasks retry --failure
failures        failures list
hasten          tasks hasten
limit           roles limit
list            tasks list
locks           locks list | locks show
log             tasks log
metrics         roles metrics
move role       roles move
openapi         serve --openapi
pause account   accounts pause
pause role      roles pause
prioritise      tasks prioritise
recover         workers recover
resume account  accounts resume
resume role     roles resume
retry           tasks retry
reviews         roles reviews
schedule        schedules
show            tasks show
simulate        workers simulate
token           tokens
top             accounts list | accounts show
unique-keys     locks unique-keys
waits           roles waits
workers         workers list
workflow        workflows
"""

#: The former name of a command, and the commands that replace it.
FORMER: Final[Mapping[str, Sequence[str]]] = {
    line[:16].rstrip(): line[16:].split(" | ") for line in _TABLE.strip().splitlines()
}


def now_called(words: Sequence[str]) -> str | None:
    """Return what replaces the former name that a command line begins with; None if there is none."""
    for length in (2, 1):
        former = " ".join(words[:length])
        names = FORMER.get(former) or [n for key, now in FORMER.items() if key.startswith(f"{former} ") for n in now]
        if names and len(words) >= length:
            return f"celeriac {former} is now: {' or '.join(f'celeriac {name}' for name in names)}"
    return None
