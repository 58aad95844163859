"""The pages there are, for tests that go through them."""

from __future__ import annotations

from urllib.parse import quote

from tests.dashboard.site import EVIL

#: Each page, what it says where there is nothing, and the tables whose lock stops all it reads.
PAGES = {
    "overview": ("nobody has looked at what is watched yet", ("alerts", "tasks", "workers")),
    "tasks": ("There is no task yet", ("tasks",)),
    "bulk": ("No bulk action yet", ("bulk_actions",)),
    "workflows": ("No workflow is under way", ("tasks",)),
    "dead-letters": ("There is none", ("dead_letters",)),
    "accounts": ("nobody has set a weight", ("account_policies",)),
    "locks": ("No lock is held", ("behind", "tasks")),
    "unique-keys": ("No unfinished task has a unique key", ("tasks",)),
    "roles": ("idle", ("roles",)),
    "workers": ("No worker has reported within 30 d", ("workers",)),
    "schedules": ("Nothing is scheduled", ("scheduled_jobs", "beats", "ticks")),
    "capacity": ("resync", ("roles",)),
    "failures": ("Nothing failed in this time: until", ("history",)),
    "decisions": ("No pass yet", ("passes",)),
    "alerts": ("No alert is open", ("alerts", "alert_silences")),
    "audit": ("Nobody has acted", ("audit",)),
    "system": ("No sweep is known", ("scheduled_jobs", "beats")),
}

#: Pages of one thing.
ONE = (
    "tasks/{pending}", "tasks/{running}", "tasks/{failed}", "tasks?state=failed", "roles/crawl", "workers/{evil}",
    "accounts/{evil}", "locks/lock:running:{evil}", "locks/free",
    "schedules/nightly%20{evil}", "decisions/1?role=crawl", "dead-letters/1",
    "workflows/{evil}",
    "audit?kind=task&target={evil}", "capacity?role=crawl&workers=2&hours=4",
    "tasks/matching?move=retry&state=failed", "bulk/1",
)  # fmt: skip


#: Pages of admins alone.
FORMS = ("new-task?role=crawl", "new-schedule", "edit-schedule/nightly%20{evil}")


def filled(path: str, ids: dict[str, int]) -> str:
    return path.format(evil=quote(EVIL, safe=""), **ids)
