"""How often Python looks for garbage in circles, which costs a worker's short tasks a sixth of its time."""

from __future__ import annotations

import gc

#: After how many new objects, as Python has it: whoever has set another number means it.
PYTHONS = (700, 2000)

#: The tasks of a ticket come to some thousands, none of them garbage before they are settled.
YOUNG = 10_000


def collect_less_often() -> None:
    """In this process and those it forks."""
    young, *older = gc.get_threshold()
    if young in PYTHONS:
        gc.set_threshold(YOUNG, *older)
