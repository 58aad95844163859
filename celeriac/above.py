"""What stands above who starts it, by name: all that the order of the folders cannot say.

A worker's threads look after alerts and repairs, and tell figures; those know the worker and the app, and so stand
above both. Nobody else is named in this way (`tests/pure/test_named_above.py`).
"""

from __future__ import annotations

from typing import Any

from kombu.utils.imports import symbol_by_name

#: A worker's: the thread that looks at alerts where no beat does, its port for figures, its repairs.
ALERT_WATCH = "celeriac.alerts.review:AlertWatch"
WORKER_PORT = "celeriac.metrics.process:of_worker"
REVIEW_AT_START = "celeriac.repair.vital:at_start"
VITAL_REPAIRS = "celeriac.repair.vital:repair"
TURN_OF_THE_RING = "celeriac.repair.ring:turn_by_worker"

#: A beat's port for figures.
BEAT_PORT = "celeriac.metrics.process:of_beat"


def load(name: str) -> Any:
    """Imported at the first call."""
    return symbol_by_name(name)
