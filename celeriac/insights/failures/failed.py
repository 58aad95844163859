"""All tasks of a group of failures, page by page."""

from __future__ import annotations

from sqlalchemy import Connection

from celeriac.errors import BadValue, Unknown
from celeriac.insights.failures.failures import failed_page
from celeriac.insights.tasks.lists import MOST_ROWS, Page
from celeriac.insights.tasks.tasks import find

#: Attempts to fill a page: each groups the next 5,000 failures.
LOOKS = 4


def failed_tasks(
    connection: Connection, fingerprint: str, *, role: str | None = None, limit: int = 100, after: int | None = None
) -> Page:
    """Return the group's tasks before `after`, newest first. A page may be short midway. Raises BadValue, Unknown."""
    if not 1 <= limit <= MOST_ROWS:
        raise BadValue(f"limit={limit}: give 1 to {MOST_ROWS:,}")
    ids, place = list[int](), after
    for _ in range(LOOKS):
        some, place = failed_page(connection, fingerprint, place, role=role)
        ids += some
        if place is None or len(ids) > limit:
            break
    if not ids and place is None and after is None:
        raise Unknown(f"there are no failures {fingerprint!r:.50}; `celeriac failures list` lists those there are")
    following = ids[limit - 1] if len(ids) > limit else place
    tasks = (find(connection, task) for task in ids[:limit])
    return Page([task for task in tasks if task is not None], None if following is None else str(following))
