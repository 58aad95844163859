"""The application's app: what `celery -A tasks` runs."""

from __future__ import annotations

from pathlib import Path

from beat import SCHEDULES
from celeriac import Celeriac

app = Celeriac(
    "tasks",
    migrations=Path(__file__).parent.parent / "migrations" / "versions",
    schedules=SCHEDULES,
    routers="tasks.endpoints:routers",
    alerts="tasks.watching:RULES",
    priority_order="celeriac",
)
