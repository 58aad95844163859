"""Looks at alerts, and what of them is in the database."""

from __future__ import annotations

from celeriac import Celeriac
from celeriac.repair import sweep
from tests.processes import Rows

STATE = "SELECT name, subject, firing_since = last_seen_at FROM celeriac.alerts ORDER BY name, subject"
LETTER = "INSERT INTO dead_letters (digest, reason, size, message) VALUES (sha256('x'), 'x', 1, 'x')"
FIRES = "SELECT name, subject FROM celeriac.alerts ORDER BY name, subject"
WAITED = "UPDATE alerts_pending SET since = since - interval '1 hour'"


def looked(app: Celeriac, rows: Rows) -> int:
    """A look, an hour after what was above a threshold got there."""
    sweep(app, "alerts")
    rows(WAITED)
    return sweep(app, "alerts")
