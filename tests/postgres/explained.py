"""Each statement that meets a room, explained as the engine executes it, and what is wrong with its plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from celeriac.store.plans import BY_HASHES, BY_LOOKUPS, IN_ORDER
from tests.postgres.backlog import is_large
from tests.postgres.parameters import statements
from tests.postgres.parameters.selected import Given
from tests.postgres.plans import Plan, explain
from tests.postgres.test_statements import STATEMENTS

Clone = Callable[[], str]
Measured = dict[str, Plan]

#: Pages that may be added however little a statement selects: a few for each of the 60 active rows, which may lie
#: anywhere, and a level of each index.
ALLOWED = 150

#: The same beside 100,000 rows, where trees have a level more: five pages for a row that is looked up by its id.
ALLOWED_AT_LARGE = 300

#: Rows of a room that may be read from end to end: what is as short as every room is beside the backlog.
FEW = 1_000

#: Tables that have a row for each role, schedule, process, ticket or token, and the engine's own bookkeeping.
SHORT = {
    "account_policies", "afterwards", "alert_deliveries", "alert_silences", "alerts", "alerts_pending", "api_tokens",
    "batchers", "beats", "bulk_actions", "dashboard_sessions", "day_changes", "day_roles", "days", "days_begun",
    "dropped_days", "enqueuers", "failure_marks", "group_results",
    "history_days", "minutes_in_all", "minutes_until", "outcomes", "queue_states", "repairs", "ring", "role_limits",
    "role_totals", "roles", "routines", "saved_views",
    "scheduled_jobs", "sweep_runs", "tickets", "unlisted", "unparking", "workers",
}  # fmt: skip

#: Not explained here: figures count what there is (`test_plans_of_figures`), these read the catalog or change it, and
#: moving a sealed segment takes whatever entries it meets first, and a day is begun and closed once.
EXCEPT = {
    "insights.capacity.CAPACITY", "insights.metrics.MEASURE", "insights.metrics.PRIORITIES",
    "insights.counting.DUE", "repair.days.CLOSE", "repair.prune.DROP_DAY", "add days",
    "move", "repair.history.BEGIN_DAY", "store.migrate.BEGIN_DAY",
    "insights.figures.ESTIMATED", "insights.figures.REVISION", "dispatch.select.DEAD",
}  # fmt: skip


def short(name: str) -> str:
    return name.removeprefix("celeriac.")


#: Functions that meet no room.
MEET_NONE = {
    "begin_rests",
    "tokens",
    "burst",
    "per_second",
    "declared_limits",
    "up_since",
    "leases_since",
    "heard_at",
    "is_heard",
    "role_of",
    "is_stale",
    "note_gap",
    "awaits_others",
    "is_instants",
    "current_window",
    "note_remote_control",
}

#: The engine's statements that meet a room, by name.
MEET_ROOMS = {
    short(name): statement
    for name, statement in STATEMENTS.items()
    if set(re.findall(r"celeriac\.(\w+)", statement.text)) - SHORT - MEET_NONE
}
HELD = ("claimed", "running")
MEET_ROOMS |= {f"{of} of {HELD}": STATEMENTS[f"{of} of {HELD}"] for of in ("page", "ids", "end")}


def measured(connection: Connection, names: Iterable[str] = MEET_ROOMS) -> Measured:
    """The plans of these statements, by name and number of their parameters."""
    return {
        f"{name}, {n}": rolled_back(connection, name, one)
        for name, given in statements(connection).items()
        if name in names
        for n, one in enumerate(given, start=1)
    }


#: Of those rooms, what the engine executes with the planner as it is.
AS_USUAL = {
    "operate.hasten.HASTEN", "operate.prioritise.HELD", "operate.prioritise.HOLD", "operate.steer.HOLD",
    "repair.aging.AGE", "repair.review.REVIEW",
    "repair.ring.STATE",
}  # fmt: skip


def by_lookups(name: str) -> bool:
    """Whether the engine executes it so."""
    return name not in AS_USUAL and (
        name.startswith(
            ("doctor.", "insights.", "metrics.", "operate.", "repair.", "canvas.", "page of", "ids of", "end of")
        )
        or name in ("dispatch.parking.PARK", "dispatch.parking.UNPARK")
        or name in ("insights.watched.LETTERS", "insights.watched.TROUBLE", "insights.watched.OLDEST")
        or name == "insights.watched.ROLES"
        or name in ("dispatch.claim.RESUME", "dispatch.promote.DUE", "enqueue.insert.EXISTING")
        or name in ("enqueue.gates.CLOSE", "enqueue.insert.STILL_BEHIND", "enqueue.insert.AGAIN")
        or name in ("seam.results.META", "seam.results.CHILDREN", "seam.results.OVER", "seam.results.FAILED")
        or name == "seam.results.PROGRESS"
    )


DELETED_IN_ORDER = {
    f"repair.prune.{what}"
    for what in (
        "TASKS",
        "DELIVERED",
        "EVENTS",
        "PASSES",
        "ADOPTED",
        "DEAD_LETTERS",
        "MINUTES",
        "LEFT_OF_BULKS",
        "OPEN",
        "PAST",
        "WITH_MEMBERS",
        "DROPPABLE",
        "ROLES_OF_DAY",
        "LEFT_BEHIND",
        "RESTS",
    )
}


def in_order(name: str) -> bool:
    """Whether it is part of a pass, which plans so."""
    return name in DELETED_IN_ORDER or name.startswith(
        ("dispatch.claim.CLAIM", "dispatch.select.", "dispatch.room.", "dispatch.record.")
    )


def rolled_back(connection: Connection, name: str, given: Given) -> Plan:
    """The plan of a statement as the engine executes it, which changes nothing."""
    statement = MEET_ROOMS[name]
    with as_executed(connection, name):
        return explain(connection, statement, **{p: given[p] for p in statement._bindparams})


@contextmanager
def as_executed(connection: Connection, name: str) -> Iterator[None]:
    """Plan as the engine does for this statement; what it changes is taken back."""
    settings = ["SAVEPOINT explained"]
    if by_lookups(name):
        settings.append(BY_LOOKUPS)
    if in_order(name):
        settings.append(IN_ORDER)
    if name.startswith("dispatch.claim.CLAIM"):
        settings.append(BY_HASHES)
    connection.exec_driver_sql("; ".join(settings))
    yield
    connection.exec_driver_sql("ROLLBACK TO explained; RELEASE explained")


def complaints(small: Measured, large: Measured, allowed: int = ALLOWED) -> list[str]:
    scans = [f"{name} reads {r}:\n{p}" for m in (small, large) for name, p in m.items() if (r := reads_all(p))]
    grows = [name for name in small if large[name].pages > 1.5 * small[name].pages + allowed]
    return scans + [f"{n} grows from {small[n].pages} to {large[n].pages} pages:\n{large[n]}" for n in grows]


def reads_all(plan: Plan) -> dict[str, int]:
    """The rooms, or parts of one, that were read from end to end."""
    return {table: rows for table, rows in plan.read.items() if is_large(table) and rows > FEW}
