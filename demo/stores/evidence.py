"""Reads what happened: from the tables, from the witness's notes and from what the sandbox has and saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sqlalchemy import Connection, text

from sandbox import Sandbox
from sandbox.webmenus import Visit

#: The worker's address, where nothing hides it.
OWN = "127.0.0.1"

ADD_PROXY = text("SELECT add_proxy(:url)")

#: The witness writes it.
RUNS_TABLE = text("CREATE TABLE runs (role text, store text, began timestamptz, ended timestamptz)")

# INVARIANT of `unfinished`: it counts follow-ups too; when it is 0, nothing is left that could change anything.
PROGRESS = text("""
SELECT
    (SELECT count(*) FROM dispensaries) AS stores,
    (SELECT count(platform_dispensary_id) FROM dispensaries) AS resolved,
    (SELECT count(*) FROM products) AS products,
    (SELECT count(*) FROM product_changes) AS changes,
    count(*) FILTER (WHERE status IN ('pending', 'claimed') AND waits_for IS DISTINCT FROM 'time') AS waiting,
    count(*) FILTER (WHERE status = 'running') AS running,
    count(*) FILTER (WHERE waits_for = 'time') AS retrying,
    count(*) FILTER (WHERE status = 'completed') AS completed,
    count(*) FILTER (WHERE status IN ('pending', 'claimed', 'running')) AS unfinished
FROM demo_tasks
""")

STAGGER = text("SELECT stagger_resyncs(:batches, now(), CAST(:period AS interval))")

LAST_STORE = text("SELECT max(id) FROM dispensaries")

OVERLAPS = text("""
SELECT count(*) FROM runs a JOIN runs b
ON a.store = b.store AND a.ctid < b.ctid AND a.began < b.ended AND b.began < a.ended
""")

RESOLVED = text("SELECT platform, menu_url, platform_dispensary_id FROM dispensaries")

RESTING = text("SELECT url FROM proxies WHERE failures > 0")

IN_USE = text("SELECT count(lease) FROM proxies")

FIGURES = text("""
SELECT (SELECT count(*) FROM dispensaries), (SELECT count(*) FROM products),
    (SELECT count(*) FROM products WHERE on_menu), (SELECT count(*) FROM product_changes),
    (SELECT coalesce(sum(products), 0)::int FROM store_analytics), (SELECT count(*) FROM runs)
""")

TASKS = text("SELECT role, status, count(*) FROM demo_tasks GROUP BY role, status")

REPEATED = text("SELECT count(*) FROM celeriac.task_events WHERE kind IN ('retry', 'snooze')")


@dataclass(frozen=True)
class Progress:
    stores: int
    resolved: int
    products: int
    changes: int
    waiting: int
    running: int
    retrying: int
    completed: int
    unfinished: int


@dataclass(frozen=True)
class Asked:
    """What was done from outside. `planned`, `planned_again`: new resyncs, of two calls for the same period;
    `run_now_was_new`: of a store that has one in wait.
    """

    stores: int
    products: int
    changed: int
    planned: int
    planned_again: int
    run_now_was_new: bool


@dataclass(frozen=True)
class Visits:
    """Of browsers to pages. `by`: how many from which address; `known`: how many brought along what an earlier one had
    left them; `at_once`: pairs at one time from one address. `leak_found`: the proxy that leaks rests; `held`: proxies
    that nobody gave back.
    """

    by: Counter[str]
    known: int
    at_once: int
    leak_found: bool
    held: int


@dataclass(frozen=True)
class Evidence:
    """`tasks`: how many, by role and state. `repeated`: attempts that a fault of the platform cost."""

    asked: Asked
    stores: int
    resolved: int
    products: int
    on_menu: int
    menu: int
    changes: int
    analysed: int
    runs: int
    overlaps: int
    repeated: int
    tasks: Mapping[tuple[str, str], int]
    visits: Visits


def progress(connection: Connection) -> Progress:
    return Progress(*connection.execute(PROGRESS).one())


def stagger(connection: Connection, batches: int, period: str) -> int:
    """How many resyncs of the period are new."""
    return int(connection.execute(STAGGER, {"batches": batches, "period": period}).scalar_one())


def last_store(connection: Connection) -> int:
    return int(connection.execute(LAST_STORE).scalar_one())


def gather(connection: Connection, outside: Sandbox, asked: Asked) -> Evidence:
    stores, products, on_menu, changes, analysed, runs = connection.execute(FIGURES).one()
    menu = sum(sum(platform.describe().values()) for platform in (outside.menus, outside.webmenus))
    return Evidence(
        asked, stores, _resolved(connection, outside), products, on_menu, menu, changes, analysed, runs,
        connection.execute(OVERLAPS).scalar_one(), connection.execute(REPEATED).scalar_one(),
        {(role, state): count for role, state, count in connection.execute(TASKS)}, _visits(connection, outside),
    )  # fmt: skip


def _resolved(connection: Connection, outside: Sandbox) -> int:
    """Stores that have the id the platform has for them."""
    platforms = {"dutchie": outside.menus, "webmenus": outside.webmenus}
    found = connection.execute(RESOLVED).all()
    return sum(platforms[platform].id_of(url.rpartition("/")[2]) == its_id for platform, url, its_id in found)


def _visits(connection: Connection, outside: Sandbox) -> Visits:
    """A visit without an end is one whose page never came: it left nothing and brought nothing."""
    made = outside.webmenus.visits
    whole = [visit for visit in made if visit.ended is not None]
    known = sum(bool(visit.cookie or visit.stored or not visit.asked_for_script) for visit in whole)
    leaking = outside.proxies[-1].url in connection.execute(RESTING).scalars().all()
    in_use = connection.execute(IN_USE).scalar_one()
    return Visits(Counter(visit.address for visit in made), known, at_once(whole), leaking, in_use)


def at_once(visits: Sequence[Visit]) -> int:
    """How many pairs of them were made at one time from one address."""
    return sum(
        one.address == other.address and one.began < (other.ended or 0) and other.began < (one.ended or 0)
        for one, other in combinations(visits, 2)
    )


def summary(evidence: Evidence) -> str:
    roles = sorted({role for role, _ in evidence.tasks})
    lines = [f"{role:22} {_counts(evidence, role)}" for role in roles]
    visits = ", ".join(f"{count} by {address}" for address, count in sorted(evidence.visits.by.items()))
    runs = f"{evidence.runs} runs, {evidence.repeated} of them repeated because of a fault"
    return "\n".join([*lines, runs, f"{evidence.visits.by.total()} visits of pages: {visits}"])


def _counts(evidence: Evidence, role: str) -> str:
    return ", ".join(f"{count} {state}" for (of, state), count in sorted(evidence.tasks.items()) if of == role)
