"""The application's app: what `celery -A tasks` runs."""

from __future__ import annotations

from pathlib import Path

from beat import HOOKS, SCHEDULES
from celeriac import Celeriac

app = Celeriac(
    "tasks",
    migrations=Path(__file__).parent.parent / "migrations" / "versions",
    schedules=SCHEDULES,
    hooks=HOOKS,
    routers="tasks.endpoints:routers",
    alerts="tasks.watching:RULES",
    jobs="crawl_subreddit",
    priority_order="celeriac",
)
