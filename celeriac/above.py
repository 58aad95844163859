"""Parts above the modules that start them, by name: the exceptions to the order of the folders.

A worker's threads run alerts and repairs and serve figures; those need the worker and the app, and so are above both.
Nothing else is named in this way (`tests/pure/test_named_above.py`).
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

#: A worker's: the thread that checks alerts where no beat does, its port for figures, its repairs.
ALERT_WATCH = "celeriac.alerts.review:AlertWatch"
WORKER_PORT = "celeriac.metrics.process:of_worker"
REVIEW_AT_START = "celeriac.repair.vital:at_start"
VITAL_REPAIRS = "celeriac.repair.vital:repair"
TURN_OF_THE_RING = "celeriac.repair.ring:turn_by_worker"

#: A beat's port for figures.
BEAT_PORT = "celeriac.metrics.process:of_beat"


def load(name: str) -> Any:
    """Import the part at the first call, and return it."""
    return resolve_name(name)
