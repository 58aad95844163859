"""Ids of schedules' tasks: `name@instant`. Only schedules may give them: whoever took one would stop its schedule."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# `celeriac.is_instants` says the same in SQL.
_FORM = re.compile(r"@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\Z", re.ASCII)


def instants_id(schedule: str, instant: datetime) -> str:
    """The id of the one task of this instant."""
    return f"{schedule}@{instant.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"


def is_instants(task_id: str) -> bool:
    return _FORM.search(task_id) is not None
