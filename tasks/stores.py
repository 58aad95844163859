"""Stores: find them, resolve them, and keep their products' prices and stock up to date.

    store_discovery → entry_point_discovery → product_discovery, and from then on a product_resync every four hours

Each step enqueues the next; it commits with the step's own outcome. At most one of a store's tasks is active at any
time, whatever its role. `STORES=false` switches the system off; what is enqueued waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, select, text, update
from sqlalchemy.orm import Session

from celeriac import ONE, Enqueued, Permanent, Task, days, insights
from models import Dispensary
from models.stores import ANALYTICS
from tasks import browser
from tasks import dutchie as dutchie  # They offer themselves as platforms.
from tasks import webmenus as webmenus
from tasks.app import app
from tasks.catalogue import remember_stores, take_stock, unresolved
from tasks.environment import number
from tasks.pace import waiting_out_limits
from tasks.platforms import WITH_BROWSER, PlatformRefused, client_of

#: Each store is resynced once in this time, the stores staggered over it in so many batches.
RESYNC_EVERY = timedelta(hours=4)
BATCHES = 6

#: Seconds until the first retry of a task that a platform failed; then twice that, and so on.
BACKOFF = number("STORES_RETRY_BACKOFF_SECONDS", 60, at_least=0.1)

#: New stores go before those that are known; what somebody asks for goes before both, however long they have waited.
NEW_STORE, RUN_NOW = 10, 60

#: Megabytes: a browser with a menu's page. Tasks that only ask an API take no more than their process.
MEMORY = browser.MEMORY if WITH_BROWSER else None

StoreRow = Row[int, str, str, str | None]


@app.task(
    bind=True, role="store_discovery", unique_by="{platform}:{state_code}", priority=0, chunk=1, window=20,
    autoretry_for=(Exception,), dont_autoretry_for=(PlatformRefused,), max_retries=3, retry_backoff=BACKOFF,
    timeout=900, stale_after=600, keep=days(7), memory_per_task=MEMORY, enabled_by="STORES",
)  # fmt: skip
def store_discovery(self: Task[..., Any], platform: str = "dutchie", state_code: str = "") -> dict[str, int]:
    """Stores the platform's stores of a state, or all, and enqueues what resolves those that are not resolved yet."""
    with waiting_out_limits(self):
        found = list(client_of(platform).stores(state_code or None))
    new = remember_stores(self.session, platform, list({store.menu_url: store for store in found}.values()))
    to_resolve = unresolved(self.session, platform, [store.menu_url for store in found])
    for dispensary_id in to_resolve:
        entry_point_discovery.delay(dispensary_id)
    return {"found": len(found), "new": new, "to_resolve": len(to_resolve)}


@app.task(
    bind=True, role="entry_point_discovery", lock_by="dispensary_id", unique_by="dispensary_id", priority=NEW_STORE,
    chunk=1, window=100, autoretry_for=(Exception,), dont_autoretry_for=(PlatformRefused,), max_retries=3,
    retry_backoff=BACKOFF, timeout=120, stale_after=600, keep=days(7), memory_per_task=MEMORY, enabled_by="STORES",
)  # fmt: skip
def entry_point_discovery(self: Task[..., Any], dispensary_id: int, platform: str | None = None) -> dict[str, Any]:
    """Resolves the store's platform id from its menu's URL and enqueues the first fetch of its products.

    A second menu of a store that is known already is not crawled from now on.
    """
    store = _store(self.session, dispensary_id, platform)
    platform_id = store.platform_dispensary_id or _resolved(self, store)
    same = select(Dispensary.id).filter_by(platform=store.platform, platform_dispensary_id=platform_id)
    if (known := self.session.scalar(same)) not in (None, store.id):
        _change(self.session, store.id, crawl_enabled=False, details=Dispensary.details.concat({"same_as": known}))
        return {"same_as": known}
    _change(self.session, store.id, platform_dispensary_id=platform_id)
    product_discovery.delay(dispensary_id)
    return {"platform_dispensary_id": platform_id}


def _resolved(task: Task[..., Any], store: StoreRow) -> str:
    with waiting_out_limits(task):
        found = client_of(store.platform).resolve(store.menu_url)
    if found is None:
        raise Permanent(f"{store.platform} has no store with the menu {store.menu_url}")
    return found


def _change(session: Session, dispensary_id: int, **values: Any) -> None:
    session.execute(update(Dispensary).filter_by(id=dispensary_id).values(**values))


@app.task(
    bind=True, role="product_discovery", lock_by="dispensary_id", unique_by="dispensary_id", priority=NEW_STORE,
    chunk=1, window=100, autoretry_for=(Exception,), dont_autoretry_for=(PlatformRefused,), max_retries=3,
    retry_backoff=BACKOFF, timeout=600, stale_after=600, keep=days(7), memory_per_task=MEMORY, enabled_by="STORES",
)  # fmt: skip
def product_discovery(self: Task[..., Any], dispensary_id: int, platform: str | None = None) -> dict[str, int]:
    """A new store's products, for the first time."""
    return _take_stock(self, dispensary_id, platform)


@app.task(
    bind=True, role="product_resync", lock_by="dispensary_id", unique_by="dispensary_id", unique_while="due",
    priority=0, chunk=1, window=100, autoretry_for=(Exception,), dont_autoretry_for=(PlatformRefused,), max_retries=3,
    retry_backoff=BACKOFF, timeout=600, stale_after=600, keep=days(7), memory_per_task=MEMORY, enabled_by="STORES",
)  # fmt: skip
def product_resync(self: Task[..., Any], dispensary_id: int, platform: str | None = None) -> dict[str, int]:
    """Prices and stock as the store's menu has them now; what changed goes into the history."""
    return _take_stock(self, dispensary_id, platform)


def _take_stock(task: Task[..., Any], dispensary_id: int, platform: str | None) -> dict[str, int]:
    store = _store(task.session, dispensary_id, platform)
    if store.platform_dispensary_id is None:
        raise Permanent(f"store {dispensary_id} has no platform id yet: entry_point_discovery finds it")
    with waiting_out_limits(task):
        menu = list(client_of(store.platform).products(store.platform_dispensary_id))
    taken = take_stock(task.session, dispensary_id, menu)
    return {"products": taken.products, "changes": taken.changes}


def _store(session: Session, dispensary_id: int, platform: str | None) -> StoreRow:
    """Ends its transaction: none is open while a platform takes its time. `platform`: where the caller has it."""
    columns = (Dispensary.id, Dispensary.platform, Dispensary.menu_url, Dispensary.platform_dispensary_id)
    store = session.execute(select(*columns).filter_by(id=dispensary_id)).one_or_none()
    session.rollback()
    if store is None:
        raise Permanent(f"there is no store {dispensary_id}")
    if platform not in (None, store.platform):
        raise Permanent(f"store {dispensary_id} is on {store.platform}, not on {platform}")
    return store


@app.task(
    bind=True, role="analytics_refresh", unique_by=ONE, priority=0, chunk=1, autoretry_for=(Exception,),
    max_retries=3, retry_backoff=BACKOFF, timeout=1800, stale_after=600, keep=days(7), enabled_by="STORES",
)  # fmt: skip
def analytics_refresh(self: Task[..., Any]) -> list[str]:
    """Refreshes the analytics' views. Readers see the old figures until the task has completed.

    CONCURRENTLY locks out no reader and, unlike CREATE INDEX CONCURRENTLY, may stand in a transaction: the task's.
    """
    for view in ANALYTICS:
        self.session.execute(text(f"REFRESH MATERIALIZED VIEW CONCURRENTLY {view}"))
    return list(ANALYTICS)


@app.task(
    bind=True, role="generate_resync", unique_by=ONE, autoretry_for=(Exception,), max_retries=3,
    retry_backoff=BACKOFF, timeout=300, keep=days(7), enabled_by="STORES",
)  # fmt: skip
def generate_resync(self: Task[..., Any], batches: int = BATCHES) -> int:
    """A resync for every store in the four hours under way; see `generate_resync_tasks`. How many are new."""
    period = func.date_bin(RESYNC_EVERY, func.statement_timestamp(), text("timestamptz '2000-01-01 00:00Z'"))
    return int(self.session.scalars(select(func.stagger_resyncs(batches, period, RESYNC_EVERY))).one())


def generate_resync_tasks(session: Session, batches: int = BATCHES, day: date | None = None) -> int:
    """One resync for each store that takes part, staggered over a day (UTC, today's by default); how many are new.

    The stores are dealt out to the batches in turn, batch b starting b * 24 / `batches` hours after midnight: with 6
    a batch of stores every four hours. What is past is due at once.

    It never doubles: a store gets one resync a day from here, however often this is called and whatever became of it;
    and none while another of its resyncs is unfinished that is due now or that day. In the caller's transaction; the
    same as `SELECT generate_resync_tasks(6, '2025-01-10')`.

    The schedule (`generate_resync`) does the same every four hours for the four hours to come, so that each *store*
    is resynced every four hours; what is planned for after them takes nobody's place.
    """
    planned = func.generate_resync_tasks(batches) if day is None else func.generate_resync_tasks(batches, day)
    return int(session.scalars(select(planned)).one())


def run_now(dispensary_id: int) -> Enqueued:
    """The store's resync, now and ahead of others; of a store that is not resolved yet, the step that leads there.

    A store with a task that is running or due within four hours, of whichever role, gets no second one: that task is
    returned, `is_new` False, put ahead and due now. Raises LookupError if there is no such store.
    """
    with Session(app.database.engine) as session:
        store = session.get(Dispensary, dispensary_id)
        if store is None:
            raise LookupError(f"there is no store {dispensary_id}")
        waiting = _unfinished(session.connection(), dispensary_id)
    if waiting is not None:
        return _hastened(Enqueued(waiting["task_id"], app=app), waiting["id"])
    role = product_resync if store.platform_dispensary_id else entry_point_discovery
    task = role.using(priority=RUN_NOW).delay(dispensary_id)
    return task if task.is_new else _hastened(task, task.row_id)


def _hastened(task: Enqueued, row: int | None) -> Enqueued:
    app.prioritise(task.id, RUN_NOW, only_raise=True)
    app.hasten(task.id)
    task.is_new, task.row_id = False, row
    return task


UNFINISHED = text("""
SELECT id, task_id FROM celeriac.tasks
WHERE role = ANY (CAST(:roles AS text[])) AND lock_key = :lock_key AND scheduled_for < statement_timestamp() + :within
ORDER BY array_position(CAST(:roles AS text[]), role), scheduled_for LIMIT 1
""")


def _unfinished(connection: Connection, dispensary_id: int) -> Mapping[str, Any] | None:
    """A task of the store that is waiting or active, the next step first; what is planned for later stays as it is."""
    asked = {"roles": [role.name for role in PER_STORE], "lock_key": f"dispensary_id:{dispensary_id}"}
    found = connection.execute(UNFINISHED, asked | {"within": RESYNC_EVERY}).mappings().one_or_none()
    return None if found is None else dict(found)


def active_task(connection: Connection, dispensary_id: int) -> dict[str, Any] | None:
    """The store's task that is claimed or running, whatever its role; there is never more than one."""
    return insights.active_under(connection, f"dispensary_id:{dispensary_id}")


#: The roles that have a store, each with one task a store that may start.
PER_STORE = (entry_point_discovery, product_discovery, product_resync)
