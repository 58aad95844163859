"""50 stores, found on a menu platform that fails now and then, resolved, stocked, resynced and summed up.

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
from demo.stage import Process, Setting, Stage, worker_and_beat
from demo.stores import evidence
from demo.stores.evidence import Asked
from demo.stores.verdicts import verdicts
from demo.verdict import Verdict
from demo.watch import watch
from sandbox import Plan
from sandbox.faults import evenly
from sandbox.menus import Menus

STORES, PRODUCTS, STATE = sized(50, 6), sized(12, 4), "AZ"
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
        "STORES_RETRY_BACKOFF_SECONDS": "1",
        "CELERIAC_DRAIN_GRACE_MS": "2000",
    }
    return Setting(environ, Plan(LATENCY_MS, evenly(FAULTS), hang_seconds=3, seed=SEED if seed is None else seed))


def play(on: Stage, screen: Screen) -> Sequence[Verdict]:
    from tasks.app import app

    with app.database.statement() as connection:
        connection.execute(evidence.RUNS_TABLE)
    app.register_roles()
    menus = on.outside.menus
    menus.open_stores(STORES, state=STATE, products=PRODUCTS)
    _introduce(screen)
    with worker_and_beat(on, "-c", str(PROCESSES), "--include", "demo.stores.witness") as processes:
        asked = Acts(app, menus, processes, screen).perform()
    with app.database.statement() as connection:
        found = evidence.gather(connection, menus, asked)
    screen.say(f"\n{evidence.summary(found)}\n")
    return verdicts(found)


def _introduce(screen: Screen) -> None:
    low, high = LATENCY_MS
    screen.say(f"Dutchie: a sandbox with {STORES} stores of {PRODUCTS} products. It takes {low} to {high} ms and fails")
    screen.say(f"{FAULTS:.0%} of requests. celery -A tasks worker: {PROCESSES} processes. celery -A tasks beat.\n")


class Acts:
    """One after the other, each until nothing is left to do."""

    def __init__(self, app: Celeriac, menus: Menus, processes: Sequence[Process], screen: Screen) -> None:
        self.app, self.menus, self.processes, self.screen = app, menus, processes, screen

    def perform(self) -> Asked:
        from tasks.stores import analytics_refresh, store_discovery

        self.screen.say("One store_discovery is enqueued; everything else follows from it.")
        store_discovery.delay("dutchie", STATE)
        self._watch()
        changed = change_menus(self.menus)
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
