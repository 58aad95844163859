"""261 InstaSite builds for six accounts.

plan        what is built
witness     notes, from inside the worker, when a build begins and ends
evidence    reads what happened
verdicts    judges it (pure)
screen      tells it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from celeriac import Celeriac
from demo.instasites import evidence, plan, verdicts
from demo.instasites.plan import CUSTOMERS, Customer
from demo.instasites.screen import progress_line, summary
from demo.screen import Screen
from demo.size import sized
from demo.stage import Setting, Stage, worker_and_beat
from demo.verdict import Verdict
from demo.watch import watch
from sandbox import Plan
from sandbox.faults import evenly

#: Seconds between two passes of the batcher and how many builds each may give; 30 and 60 are the system's own.
INTERVAL, BATCH = sized((10.0, 60), (1.0, 6))
LATENCY_MS = (50, 200)
FAULTS = 0.05
PROCESSES = sized(8, 3)
QUEUES = "instasite_build,instasite_analytics,instasite_dns,instasite_domain_check,instasite_ready_mail"

#: The sandbox holds a hanging request for longer than the client waits and the first retry takes: it acts late.
CLIENT_WAITS, HANGS_FOR = 2.0, 8.0

#: Seconds after which the CNAME records of the custom domains appear, and after which the demo gives up.
DOMAINS_AFTER, GIVES_UP_AFTER = sized(15.0, 1.0), 240.0

#: Which request meets which fault. Chosen: with it, no site of a quiet account needs more than one backoff. With most
#: others one needs two or three (5, 10, 20 s, each up to the next pass), and the last verdict may fail for that reason.
SEED = sized(16, 37)


def setting(seed: int | None) -> Setting:
    environ = {
        "QM_INSTASITES_INTERVAL_SECONDS": f"{INTERVAL:g}",
        "QM_INSTASITES_BATCH_SIZE": str(BATCH),
        "INSTASITES_DOMAIN_LOOK_SECONDS": f"{sized(3, 0.5):g}",
        "QM_SITES_BUILD_THUMBNAILS": "false",
        "DUDA_REQUESTS_PER_SECOND": "1000",
        "DUDA_TIMEOUT_SECONDS": f"{CLIENT_WAITS:g}",
        "CELERIAC_DRAIN_GRACE_MS": "2000",
    }
    outside = Plan(LATENCY_MS, evenly(FAULTS), hang_seconds=HANGS_FOR, seed=SEED if seed is None else seed)
    return Setting(environ, outside)


def play(on: Stage, screen: Screen) -> Sequence[Verdict]:
    from tasks.app import app

    _introduce(screen, on)
    with app.database.statement() as connection:
        connection.execute(evidence.RUNS_TABLE)
    customers = accept(app)
    for customer in customers.values():
        if customer.kind == plan.SERVED:
            on.outside.cloudflare.open_zone(plan.zone(customer))
    screen.say(f"{plan.BUILDS} builds are accepted, each with its site: rows, before there is any worker.\n")
    with worker_and_beat(on, "-c", str(PROCESSES), "-Q", QUEUES, "--include", "demo.instasites.witness") as processes:
        at_work = AtWork(app, on, customers, screen)
        watch(at_work.look, processes, screen, gives_up_after=GIVES_UP_AFTER)
    return judge(app, on, customers, screen)


def _introduce(screen: Screen, on: Stage) -> None:
    low, high = LATENCY_MS
    seed = on.outside.faults.plan.seed
    screen.say(
        f"Duda, mail and DNS: a sandbox. Duda takes {low} to {high} ms and fails {FAULTS:.0%} of requests; seed {seed}."
    )
    screen.say(f"celery -A tasks worker: {PROCESSES} processes. celery -A tasks beat: a pass of the batcher every")
    screen.say(
        f"{INTERVAL:g} s (QM_INSTASITES_INTERVAL_SECONDS={INTERVAL:g}, so that it takes less time; 30 s is the rule)."
    )
    told = ", ".join(f"{customer.name} {customer.sites}" for customer in CUSTOMERS)
    screen.say(f"Sites per account: {told}. The broken one has lost its template.")


def accept(app: Celeriac) -> dict[int, Customer]:
    """Creates accounts, sites and builds in one transaction; the customers by account id."""
    with Session(app.database.engine) as session, session.begin():
        return plan.create(session)


class AtWork:
    """Until nothing is left to do. The custom domains' CNAME records appear meanwhile."""

    def __init__(self, app: Celeriac, on: Stage, customers: Mapping[int, Customer], screen: Screen) -> None:
        self.app, self.names, self.screen = app, on.outside.names, screen
        self.customers, self.pointed = customers, False

    def look(self, seconds: float) -> tuple[str, bool]:
        with self.app.database.statement() as connection:
            now = evidence.progress(connection, self.customers)
        if now.unfinished and seconds > DOMAINS_AFTER and not self.pointed:
            self._point_domains()
        return progress_line(now), not now.unfinished

    def _point_domains(self) -> None:
        from tasks.instasites import CNAME_TARGET

        self.pointed = True
        by_hand = [account for account, customer in self.customers.items() if customer.kind != plan.SERVED]
        with self.app.database.statement() as connection:
            domains = evidence.domains(connection, by_hand)
        self.names.update(dict.fromkeys(domains, CNAME_TARGET))
        self.screen.say(
            f"Customers without a DNS provider set the CNAME records of their {len(domains)} domains now; until here "
            "the checks snooze."
        )


def judge(app: Celeriac, on: Stage, customers: Mapping[int, Customer], screen: Screen) -> Sequence[Verdict]:
    with app.database.statement() as connection:
        found = evidence.gather(connection, on.outside, customers)
        screen.say(f"\n{summary(found, evidence.early_looks(connection))}\n")
    return verdicts.verdicts(found)
