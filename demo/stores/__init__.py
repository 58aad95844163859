"""50 stores, found on menu platforms that fail now and then, resolved, stocked, resynced and summed up.

Most are asked over an API, here from the worker's own address; some have web pages, which browsers visit by proxies.

witness     notes, from inside the worker, when each handler begins and ends
evidence    reads what happened
verdicts    judges it (pure)
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from celeriac import Celeriac
from demo.screen import Screen
from demo.size import sized
from demo.stage import Process, Setting, Stage, browser, worker_and_beat
from demo.stores import evidence
from demo.stores.evidence import Asked
from demo.stores.verdicts import verdicts
from demo.verdict import Verdict
from demo.watch import watch
from sandbox import Plan, Sandbox
from sandbox.faults import evenly
from sandbox.menus import Menus

#: Of the stores, so many have web pages.
STORES, WITH_PAGES, PRODUCTS, STATE = sized(50, 6), sized(5, 2), sized(12, 4), "AZ"

#: The last of them shows the worker's own address.
PROXIES = sized(5, 3)
LATENCY_MS = (20, 100)
FAULTS = 0.08
PROCESSES = sized(6, 3)

#: As in earnest, but for the time it takes: there, a batch comes every 40 minutes.
BATCHES, PERIOD = 6, sized("6 seconds", "1 second")

GIVES_UP_AFTER = 90.0
SEED = 3


def setting(seed: int | None) -> Setting:
    environ = {
        "DUTCHIE_REQUESTS_PER_SECOND": "1000",
        "DUTCHIE_TIMEOUT_SECONDS": "1",
        "DUTCHIE_BY_PROXY": "false",
        "STORES_RETRY_BACKOFF_SECONDS": "1",
        "BROWSER_VISIT_SECONDS": "15",
        "BROWSER_LOOK_SECONDS": "3",
        "PROXY_REST_SECONDS": "1",
        "CELERIAC_DRAIN_GRACE_MS": "2000",
    }
    plan = Plan(LATENCY_MS, evenly(FAULTS), hang_seconds=3, seed=SEED if seed is None else seed)
    return Setting(environ, plan, PROXIES)


def play(on: Stage, screen: Screen) -> Sequence[Verdict]:
    from tasks.app import app

    with app.database.statement() as connection:
        connection.execute(evidence.RUNS_TABLE)
        for proxy in on.outside.proxies:
            connection.execute(evidence.ADD_PROXY, {"url": proxy.url})
    app.register_roles()
    on.outside.menus.open_stores(STORES - WITH_PAGES, state=STATE, products=PRODUCTS)
    on.outside.webmenus.open_stores(WITH_PAGES, state=STATE, products=PRODUCTS)
    on.outside.proxies[-1].leaves_by = evidence.OWN
    _introduce(screen)
    with worker_and_beat(on, "-c", str(PROCESSES), "--include", "demo.stores.witness") as processes:
        asked = Acts(app, on.outside, processes, screen).perform()
    with app.database.statement() as connection:
        found = evidence.gather(connection, on.outside, asked)
    screen.say(f"\n{evidence.summary(found)}\n")
    return verdicts(found)


def _introduce(screen: Screen) -> None:
    low, high = LATENCY_MS
    at_dutchie = STORES - WITH_PAGES
    screen.say(f"A sandbox: {at_dutchie} stores at Dutchie, {WITH_PAGES} with web pages, of {PRODUCTS} products each.")
    screen.say(f"It takes {low} to {high} ms and fails {FAULTS:.0%} of requests. Pages are visited with {browser()}")
    screen.say(f"by {PROXIES} proxies, one of which leaks the worker's own address.")
    screen.say(f"celery -A tasks worker: {PROCESSES} processes. celery -A tasks beat.\n")


class Acts:
    """One after the other, each until nothing is left to do."""

    def __init__(self, app: Celeriac, outside: Sandbox, processes: Sequence[Process], screen: Screen) -> None:
        self.app, self.outside, self.processes, self.screen = app, outside, processes, screen

    def perform(self) -> Asked:
        from tasks.stores import analytics_refresh, store_discovery

        self.screen.say("A store_discovery is enqueued for each platform; everything else follows from them.")
        store_discovery.delay("dutchie", STATE)
        store_discovery.delay("webmenus", STATE)
        self._watch()
        changed = change_menus(self.outside.menus) + change_menus(self.outside.webmenus)
        self.screen.say(
            f"{changed} products have another price now, or are gone; the resyncs come in {BATCHES} batches."
        )
        asked = self._resync(changed)
        self._watch()
        self.screen.say("The analytics are refreshed.")
        analytics_refresh.delay()
        self._watch()
        return asked

    def _resync(self, changed: int) -> Asked:
        from tasks.stores import run_now

        with Session(self.app.database.engine) as session, session.begin():
            planned, again = (evidence.stagger(session.connection(), BATCHES, PERIOD) for _ in range(2))
            last = evidence.last_store(session.connection())
        return Asked(STORES, PRODUCTS, changed, planned, again, bool(run_now(last).is_new))

    def _watch(self) -> None:
        watch(self._look, self.processes, self.screen, gives_up_after=GIVES_UP_AFTER)

    def _look(self, _: float) -> tuple[str, bool]:
        with self.app.database.statement() as connection:
            now = evidence.progress(connection)
        return (
            f"stores {now.stores}, resolved {now.resolved}, products {now.products}, changes {now.changes}  "
            f"waiting {now.waiting}, running {now.running}, to retry {now.retrying}, completed {now.completed}"
        ), not now.unfinished


def change_menus(menus: Menus) -> int:
    """In every store one product gets another price and one is dropped; how many that are."""
    slugs = list(menus.describe())
    for slug in slugs:
        repriced, dropped, *_ = menus.products_of(slug)
        menus.change(slug, repriced, prices=[7.77], stock=[1])
        menus.drop(slug, dropped)
    return 2 * len(slugs)
