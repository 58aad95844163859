"""Make Python search for garbage in cycles less often: it costs a worker's short tasks a sixth of their time."""

from __future__ import annotations

import gc

#: Python's own thresholds (new objects): another one was set on purpose and is left alone.
PYTHONS = (700, 2000)

#: The new threshold. The tasks of a ticket make some thousands of objects, none garbage before they are settled.
YOUNG = 10_000


def collect_less_often() -> None:
    """Raise the threshold in this process and those it forks."""
    young, *older = gc.get_threshold()
    if young in PYTHONS:
        gc.set_threshold(YOUNG, *older)
