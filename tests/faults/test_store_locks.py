"""At most one of a store's tasks is active at a time, over all roles and workers, and no role waits for ever."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sandbox
from demo.stores.evidence import OVERLAPS, RUNS_TABLE
from demo.stores.witness import ROLES
from tasks.app import app
from tasks.stores import (
    analytics_refresh,
    store_discovery,
)
from tests.processes import until
from tests.systems.stack import Stack, on_servers

OPEN_STORES = """
INSERT INTO dispensaries (platform, menu_url, name, platform_dispensary_id)
VALUES ('dutchie', 'https://dutchie.com/dispensary/' || :slug, :slug, :id) RETURNING id
"""

UNFINISHED = "SELECT count(*) FROM worker_tasks WHERE status IN ('pending', 'claimed', 'running')"

#: A role's longest wait for its next run, as a share of the whole time, from the first run on.
LONGEST_WAIT = """
WITH span AS (SELECT min(began) AS first, max(ended) AS last FROM runs), turns AS (
    SELECT role, began, lag(began, 1, span.first) OVER (PARTITION BY role ORDER BY began) AS before FROM runs, span
)
SELECT role, max(extract(epoch FROM began - before) / extract(epoch FROM span.last - span.first))::float
FROM turns, span GROUP BY role
"""


@pytest.fixture
def stack(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    with (
        sandbox.start(plan=sandbox.Plan(latency_ms=(5, 40))) as outside,
        Stack(database_url, redis_url, outside, tmp_path) as stack,
        on_servers(app, stack.environ),
    ):
        app.register_roles()
        stack.rows(str(RUNS_TABLE))
        yield stack


def start_workers(stack: Stack, number: int) -> None:
    for n in range(number):
        stack.worker(*ROLES, name=f"stores-{n}", include="demo.stores.witness")


def enqueue(role: str, store: int) -> None:
    """The two roles that have no store of their own get one, so that all five contend for it."""
    bound = {"lock_key": f"dispensary_id:{store}", "unique_key": f"of store {store}"}
    match role:
        case "store_discovery":
            store_discovery.using(**bound).delay("dutchie", "nowhere")
        case "analytics_refresh":
            analytics_refresh.using(**bound).delay()
        case _:
            app.tasks[role].delay(store)


def test_a_stores_tasks_never_overlap_and_no_role_starves(stack: Stack, sized: Callable[[int, int], int]) -> None:
    slugs = stack.outside.menus.open_stores(sized(50, 20))
    ids = [int(str(stack.rows.one(OPEN_STORES, slug=slug, id=stack.outside.menus.id_of(slug)))) for slug in slugs]
    start_workers(stack, sized(4, 2))
    calls = list(itertools.product(ROLES, ids))
    random.Random(7).shuffle(calls)
    for role, store in calls:
        enqueue(role, store)
    until(lambda: stack.rows.one(UNFINISHED) == 0, "all tasks")
    assert stack.rows.one(str(OVERLAPS)) == 0
    done = dict(stack.rows("SELECT role, count(DISTINCT store) FROM runs GROUP BY role"))
    assert done == dict.fromkeys(ROLES, len(ids))
    waits = dict(stack.rows(LONGEST_WAIT))
    assert max(waits.values()) < 0.5
