"""Reads what happened: from the tables, from the witness's notes and from what is on the sandbox's menus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, text

from sandbox.menus import Menus

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

RESOLVED = text("SELECT menu_url, platform_dispensary_id FROM dispensaries")

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


def progress(connection: Connection) -> Progress:
    return Progress(*connection.execute(PROGRESS).one())


def stagger(connection: Connection, batches: int, period: str) -> int:
    """How many resyncs of the period are new."""
    return int(connection.execute(STAGGER, {"batches": batches, "period": period}).scalar_one())


def last_store(connection: Connection) -> int:
    return int(connection.execute(LAST_STORE).scalar_one())


def gather(connection: Connection, menus: Menus, asked: Asked) -> Evidence:
    stores, products, on_menu, changes, analysed, runs = connection.execute(FIGURES).one()
    return Evidence(
        asked, stores, _resolved(connection, menus), products, on_menu, sum(menus.describe().values()), changes,
        analysed, runs, connection.execute(OVERLAPS).scalar_one(), connection.execute(REPEATED).scalar_one(),
        {(role, state): count for role, state, count in connection.execute(TASKS)},
    )  # fmt: skip


def _resolved(connection: Connection, menus: Menus) -> int:
    """Stores that have the id the platform has for them."""
    slugs = {url.rpartition("/")[2]: platform_id for url, platform_id in connection.execute(RESOLVED)}
    return sum(menus.id_of(slug) == platform_id for slug, platform_id in slugs.items())


def summary(evidence: Evidence) -> str:
    roles = sorted({role for role, _ in evidence.tasks})
    lines = [f"{role:22} {_counts(evidence, role)}" for role in roles]
    return "\n".join([*lines, f"{evidence.runs} runs, {evidence.repeated} of them repeated because of a fault"])


def _counts(evidence: Evidence, role: str) -> str:
    return ", ".join(f"{count} {state}" for (of, state), count in sorted(evidence.tasks.items()) if of == role)
