"""Stores through public names: a real worker, Postgres and Redis, and the sandbox as Dutchie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from celeriac.schedules.listed import entries
from tasks.app import app
from tasks.dutchie import MENU_URL
from tasks.stores import (
    active_task,
    analytics_refresh,
    entry_point_discovery,
    generate_resync,
    product_discovery,
    product_resync,
    run_now,
    store_discovery,
)
from tests.processes import until
from tests.systems.stack import Stack, on_servers

pytestmark = pytest.mark.usefixtures("no_faults")

QUEUES = (
    "store_discovery", "entry_point_discovery", "product_discovery", "product_resync", "analytics_refresh",
    "generate_resync",
)  # fmt: skip

MENU = MENU_URL.format("")

ADD_STORE = "INSERT INTO dispensaries (platform, menu_url, name) VALUES ('dutchie', :url, 'A store')"

HISTORY = """
SELECT c.price::float, c.stock FROM product_changes c JOIN products p ON p.id = c.product_id
JOIN dispensaries d ON d.id = p.dispensary_id
WHERE d.menu_url LIKE '%/' || :slug AND p.platform_product_id = :product ORDER BY c.id
"""


class Stores:
    """The stack as these tests see it; each test has a state of its own at Dutchie."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.rows, self.menus = stack, stack.rows, stack.outside.menus

    def id(self, slug: str) -> int:
        return int(str(self.rows.one("SELECT id FROM dispensaries WHERE menu_url LIKE '%/' || :slug", slug=slug)))

    def task(self, role: str, key: object) -> dict[str, Any]:
        """The latest task of the role with this unique key, planned or not; empty if there is none."""
        latest = """SELECT to_jsonb(t) FROM worker_tasks t
            WHERE role = :role AND split_part(unique_key, ' in ', 1) = :key ORDER BY id DESC LIMIT 1"""
        found = self.rows(latest, role=role, key=str(key))
        return found[0][0] if found else {}

    def until_done(self, role: str, key: object, status: str = "completed") -> dict[str, Any]:
        return until(lambda: (t := self.task(role, key)).get("status") == status and t, f"{role} {key} {status}")

    def discover(self, state: str, stores: int, products: int = 5) -> list[int]:
        """Opens stores and has them found, resolved and their products fetched; their ids."""
        slugs = self.menus.open_stores(stores, state=state, products=products)
        store_discovery.delay("dutchie", state)
        self.until_done("store_discovery", f"dutchie:{state}")
        ids = [self.id(slug) for slug in slugs]
        for store in ids:
            self.until_done("product_discovery", store)
        return ids

    def resync(self, store: int) -> dict[str, Any]:
        product_resync.delay(store)
        return self.until_done("product_resync", store)

    def history(self, slug: str, product: str) -> list[tuple[Any, ...]]:
        return self.rows(HISTORY, slug=slug, product=product)


@pytest.fixture(scope="module")
def stores(stack: Stack) -> Iterator[Stores]:
    with on_servers(app, stack.environ):
        app.register_roles()
        stack.worker(*QUEUES)
        yield Stores(stack)


def test_stores_are_found_resolved_and_stocked_each_step_by_the_one_before(stores: Stores) -> None:
    ids = stores.discover("AZ", 3, products=7)
    assert stores.task("store_discovery", "dutchie:AZ")["result"] == {"found": 3, "new": 3, "to_resolve": 3}
    resolved = "SELECT state, count(platform_dispensary_id), count(last_resync_at) FROM dispensaries GROUP BY state"
    assert ("AZ", 3, 3) in stores.rows(resolved)
    per_store = "SELECT count(*), count(DISTINCT platform_product_id) FROM products WHERE dispensary_id = :store"
    assert all(stores.rows(per_store, store=store) == [(7, 7)] for store in ids)
    chained = "SELECT DISTINCT c.role, p.role FROM worker_tasks c JOIN worker_tasks p ON p.id = c.parent_id"
    assert sorted(stores.rows(chained)) == [
        ("entry_point_discovery", "store_discovery"),
        ("product_discovery", "entry_point_discovery"),
    ]


def test_the_roles_have_their_priorities_and_one_lock_a_store(stores: Stores) -> None:
    per_store = (entry_point_discovery, product_discovery, product_resync)
    assert [task.role.priority for task in (store_discovery, *per_store, analytics_refresh)] == [0, 10, 10, 0, 0]
    assert {(task.role.lock_by, task.role.unique_by) for task in per_store} == {("dispensary_id", "dispensary_id")}


def test_a_store_found_again_is_corrected_and_not_resolved_again(stores: Stores) -> None:
    (store,) = stores.discover("NV", 1)
    stores.rows("UPDATE dispensaries SET name = 'Old' WHERE id = :id", id=store)
    store_discovery.delay("dutchie", "NV")
    told = until(lambda: stores.task("store_discovery", "dutchie:NV").get("result"), "the second discovery")
    assert told == {"found": 1, "new": 0, "to_resolve": 0}
    assert stores.rows.one("SELECT name FROM dispensaries WHERE id = :id", id=store) == "Nv 1"
    assert stores.rows.one("SELECT count(*) FROM worker_tasks WHERE unique_key = :id", id=str(store)) == 2


def test_only_what_changed_at_a_resync_goes_into_the_history(stores: Stores) -> None:
    (store,) = stores.discover("CA", 1, products=4)
    cheaper, sold, gone, same = stores.menus.products_of("ca-1")
    stores.menus.change("ca-1", cheaper, prices=[8.5, 20.0], stock=[0, 2])
    stores.menus.change("ca-1", sold, prices=[11.0], stock=[0])
    stores.menus.drop("ca-1", gone)
    assert stores.resync(store)["result"] == {"products": 3, "changes": 3}
    assert stores.history("ca-1", cheaper) == [(10.0, 2), (8.5, 2)]
    assert stores.history("ca-1", sold) == [(11.0, 3), (11.0, 0)]
    assert stores.history("ca-1", gone) == [(12.0, 4), (12.0, 0)]
    assert stores.history("ca-1", same) == [(13.0, 5)]
    assert stores.resync(store)["result"] == {"products": 3, "changes": 0}


def test_a_menu_of_several_pages_is_read_to_its_end(stores: Stores) -> None:
    (store,) = stores.discover("CO", 1, products=230)
    assert stores.task("product_discovery", store)["result"] == {"products": 230, "changes": 230}


def test_a_task_may_name_its_store_s_platform_and_no_other(stores: Stores) -> None:
    (store,) = stores.discover("AK", 1)
    product_resync.delay(store, platform="dutchie")
    assert stores.until_done("product_resync", store)["result"] == {"products": 5, "changes": 0}
    product_resync.delay(store, platform="webmenus")
    failed = stores.until_done("product_resync", store, "failed")
    assert failed["error_message"] == f"Permanent: store {store} is on dutchie, not on webmenus"


def test_a_store_that_dutchie_does_not_know_fails_at_once(stores: Stores) -> None:
    stores.discover("OR", 1)
    stores.menus.close_store("or-1")
    stores.rows("UPDATE dispensaries SET platform_dispensary_id = NULL WHERE state = 'OR'")
    entry_point_discovery.delay(stores.id("or-1"))
    row = stores.until_done("entry_point_discovery", stores.id("or-1"), "failed")
    assert row["error_message"].startswith("Permanent: dutchie has no store with the menu https://dutchie.com/")
    assert row["retry_count"] == 0


def test_a_second_menu_of_a_known_store_is_not_crawled(stores: Stores) -> None:
    (store,) = stores.discover("NM", 1)
    by_id = stores.menus.id_of("nm-1")
    stores.rows(
        "INSERT INTO dispensaries (platform, menu_url, name) VALUES ('dutchie', :url, 'Twin')", url=MENU + by_id
    )
    entry_point_discovery.delay(stores.id(by_id))
    twin = stores.until_done("entry_point_discovery", stores.id(by_id))
    assert twin["result"] == {"same_as": store}
    assert stores.task("product_discovery", stores.id(by_id)) == {}
    shown = "SELECT crawl_enabled, platform_dispensary_id, details FROM dispensaries WHERE menu_url = :url"
    assert stores.rows(shown, url=MENU + by_id) == [(False, None, {"same_as": store})]


@pytest.mark.parametrize("fault", ["server_error", "reset_after", "hang_before"])
def test_what_dutchie_failed_is_tried_again_and_loses_nothing(stores: Stores, fault: Any) -> None:
    state = fault.upper()
    stores.menus.open_stores(2, state=state)
    for operation in ("ConsumerDispensaries", "DispensaryBySlug", "FilteredProducts"):
        stores.stack.outside.faults.order(fault, operation)
    store_discovery.delay("dutchie", state)
    stocked = "SELECT count(last_resync_at) FROM dispensaries WHERE state = :state"
    until(lambda: stores.rows.one(stocked, state=state) == 2, "both stores' products")
    assert stores.task("store_discovery", f"dutchie:{state}")["retry_count"] == 1


def test_a_rate_limit_is_waited_for_without_using_up_an_attempt(stores: Stores) -> None:
    (store,) = stores.discover("MI", 1)
    limited = {"retry_after": 0, "orders": [{"kind": "rate_limited", "operation": "FilteredProducts"}]}
    stores.stack.outside.faults.change(limited)
    assert stores.resync(store)["retry_count"] == 0
    snoozed = (
        "SELECT e.kind FROM celeriac.task_events e JOIN worker_tasks t ON t.id = e.task WHERE t.unique_key = :store"
    )
    assert stores.rows(snoozed, store=str(store)) == [("snooze",)]


def test_the_analytics_are_as_of_the_last_refresh(stores: Stores) -> None:
    (store,) = stores.discover("WA", 1, products=4)
    figures = "SELECT products, in_stock, lowest_price::float FROM store_analytics WHERE dispensary_id = :store"
    assert stores.rows(figures, store=store) == []
    analytics_refresh.delay()
    refreshed = stores.until_done("analytics_refresh", "{one}")
    assert refreshed["result"] == ["store_analytics", "brand_analytics"]
    assert stores.rows(figures, store=store) == [(4, 4, 10.0)]
    assert stores.rows("SELECT sum(products) FROM brand_analytics WHERE state = 'WA'") == [(4,)]


def test_the_schedules_task_gives_each_store_one_resync_in_four_hours(stores: Stores) -> None:
    stores.rows("UPDATE dispensaries SET crawl_enabled = false")
    ids = stores.discover("UT", 3)
    for _ in range(2):
        generate_resync.delay()
        stores.until_done("generate_resync", "{one}")
    planned = (
        "SELECT task_id, scheduled_for - now() < interval '4 hours' FROM worker_tasks WHERE task_id LIKE 'resync %'"
    )
    found = stores.rows(planned)
    assert sorted(int(task.split()[1]) for task, _ in found) == ids
    assert all(in_time for _, in_time in found)


def test_run_now_returns_the_task_that_is_queued_and_has_it_run_now(stores: Stores) -> None:
    (store,) = stores.discover("IL", 1)
    queued = product_resync.apply_async((store,), countdown=3600)
    again = run_now(store)
    assert (again.id, again.row_id, again.is_new) == (queued.id, queued.row_id, False)
    assert stores.until_done("product_resync", store)["priority"] == 60
    assert run_now(store).is_new
    with pytest.raises(LookupError, match="no store 0"):
        run_now(0)


def test_run_now_of_a_store_that_is_not_resolved_leads_there_once(stores: Stores) -> None:
    slug, state = "unresolved-1", "MT"
    stores.menus.open_store(slug, state=state)
    stores.rows(ADD_STORE, url=MENU + slug)
    assert run_now(stores.id(slug)).is_new
    stores.until_done("product_discovery", stores.id(slug))
    assert stores.task("product_resync", stores.id(slug)) == {}


def test_a_stores_active_task_is_the_one_that_runs_whatever_its_role(stores: Stores) -> None:
    (store,) = stores.discover("ME", 1)
    stores.stack.outside.faults.order("hang_before", "FilteredProducts")

    def active() -> dict[str, Any] | None:
        with app.database.statement() as connection:
            return active_task(connection, store)

    assert active() is None
    product_resync.delay(store)
    running = until(lambda: (t := active()) and t["status"] == "running" and t, "the resync")
    product_discovery.delay(store)
    assert (running["role"], run_now(store).id) == (
        "product_resync",
        stores.task("product_discovery", store)["task_id"],
    )
    stores.stack.outside.release()
    stores.until_done("product_resync", store)
    stores.until_done("product_discovery", store)
    until(lambda: active() is None, "the end of both")


def test_beat_finds_stores_daily_and_resyncs_them_every_four_hours(stores: Stores) -> None:
    """Last: its beat has the stores of all the tests before found and resynced again and again."""
    wanted = {entry.target: entry.cron_expression for entry in entries(app).values() if entry.kind == "task"}
    daily = {"store_discovery": "0 3 * * *", "analytics_refresh": "0 5 * * *"}
    assert wanted | daily | {"generate_resync": "0 */4 * * *"} == wanted
    stores.rows("UPDATE dispensaries SET crawl_enabled = false")
    (slug,) = stores.menus.open_stores(1, state="BT")
    stores.stack.beat(
        CELERIAC_SCHEDULE_STORE_DISCOVERY_DUTCHIE="@every 500ms", CELERIAC_SCHEDULE_RESYNCS="@every 500ms"
    )
    until(lambda: stores.rows("SELECT FROM dispensaries WHERE state = 'BT' AND last_resync_at IS NOT NULL"), slug)
    until(lambda: stores.task("product_resync", stores.id(slug)), "its resync")
