"""A statement costs what it selects: no plan reads the backlog, whatever its shape and the statistics there are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from sqlalchemy import Connection, TextClause, create_engine

from celeriac.dispatch import claim, promote, select
from celeriac.enqueue import insert
from celeriac.insights import counting, lists, system, tasks
from celeriac.operate import cancel, steer
from celeriac.repair import aging, leaderless_locks, prune, review
from celeriac.run import lease, start
from celeriac.settle import look, release, write
from tests.postgres.backlog import SHAPES, TOKEN, analyze, analyze_while_idle, fill
from tests.postgres.conftest import new_task
from tests.postgres.plans import Plan, explain

Clone = Callable[[], str]
Measured = dict[str, Plan]

SMALL, LARGE = 5_000, 100_000
SELECTED = 60

#: Pages that may be added however little a statement selects: a few for each of the 60 active rows, which may lie
#: anywhere, and a level of each index.
ALLOWED = 150


def statements(connection: Connection) -> Mapping[str, tuple[TextClause, dict[str, Any]]]:
    """Each of the verbs' statements, asked for 60 of what is there."""

    def found(query: str) -> list[Any]:
        return list(connection.exec_driver_sql(query).scalars())

    ready = "FROM worker_tasks WHERE role = 'work' AND status = 'pending' AND waits_for IS NULL"
    accounts = found(f"SELECT DISTINCT account {ready} ORDER BY account LIMIT {SELECTED}")
    running = found("SELECT id FROM worker_tasks WHERE worker_id = 'w' AND status = 'running' AND account <> ''")
    claimed = found("SELECT id FROM worker_tasks WHERE status = 'claimed'")
    (lone,) = found("SELECT id FROM worker_tasks WHERE task_id = 'ready-1'")
    share = SELECTED // len(accounts)
    done = {"token": TOKEN, "status": "completed", "retry_count": 0, "tries": 0, "keep": True}
    work, w = {"role": "work"}, {"worker_id": "w", "pid": 1}
    given = {"token": TOKEN, "ids": claimed}
    fresh = [new_task(lock_key=f"new {i}", unique_key=f"new {i}") for i in range(SELECTED)]
    taken = [new_task("keyed", unique_key=f"u{i}") for i in range(SELECTED)]
    released = {"ids": running, "tokens": [TOKEN] * len(running), "status": "running", "kind": "", "why": "", "by": ""}
    return {
        "survey": (select.SURVEY, work | {"queue": "work"}),
        "claimants": (select.CLAIMANTS, work | {"cursor": "m5", "accounts": SELECTED, "depth": 16}),
        "claimants, from the start": (select.CLAIMANTS, work | {"cursor": "", "accounts": SELECTED, "depth": 16}),
        "claimants, past the end": (select.CLAIMANTS, work | {"cursor": "z", "accounts": SELECTED, "depth": SELECTED}),
        "waiting": (select.WAITING, work | {"accounts": accounts, "depth": SELECTED}),
        "claim": (claim.CLAIM, work | {"accounts": accounts, "slots": [share] * len(accounts), "token": TOKEN}),
        "claim from one": (claim.CLAIM, work | {"accounts": accounts[:1], "slots": [SELECTED], "token": TOKEN}),
        "claim a lone one": (claim.CLAIM_LONE, work | {"id": lone, "token": TOKEN, "few": 16}),
        "work and room": (select.WORK_AND_ROOM, work | {"below": 1500}),
        "work and room, none": (select.WORK_AND_ROOM, {"role": "nothing of it", "below": 1500}),
        "due": (promote.DUE, work | {"batch": SELECTED}),
        "all due": (promote.DUE, work | {"batch": 2000}),
        "lead": (look.LEAD, {"keys": ["held", *(f"key-{i}" for i in range(SELECTED))]}),
        "leaderless": (leaderless_locks.LEADERLESS, {"first": "", "batch": 500}),
        "stale": (release.STALE, {"batch": 500, "minutes": None}),
        "age": (aging.AGE, {"after": 3600, "every": 300, "step": 10, "ceiling": 49, "batch": SELECTED}),
        "review": (review.REVIEW, {"by": "test", "counted": SELECTED, "done": "{}"}),
        "has due": (promote.HAS_DUE, work),
        "roles with due": (promote.ROLES_WITH_DUE, {}),
        "resume": (claim.RESUME, {"ids": [lone], "room": 5, "token": TOKEN}),
        "unstarted": (release.UNSTARTED, {"grace": 60}),
        "of process": (release.OF_PROCESS, w),
        "rows of": (release.ROWS_OF, w),
        "release": (release.RELEASE, released | {"loss": True}),
        "still running": (release.STILL_RUNNING, {"ids": running, "tokens": released["tokens"]}),
        "renew": (lease.RENEW, {"worker_id": "w", "pids": [1], "grace": 1}),
        "start": (start.START, given | w | {"timeout": None, "again": False}),
        "begin": (start.BEGIN, {"id": running[0], "token": TOKEN, "timeout": 60}),
        "expire": (start.EXPIRE, given | {"by": ""}),
        "settle": (write.SETTLE, {"by": "", "outcomes": json.dumps([done | {"id": i} for i in running])}),
        "complete": (write.COMPLETE, {"ids": running, "tokens": released["tokens"], "results": ["1"] * len(running)}),
        "cancel": (cancel.CANCEL, {"task_ids": ["ready-1"], "by": "", "why": ""}),
        "enqueue": (insert.INSERT, {"rows": insert.as_json(fresh), "given_up": ["held"]}),
        "enqueue ready": (insert.INSERT_READY, insert.ready_row(new_task(unique_key="new"))),
        "existing": (insert.EXISTING, {"rows": insert.as_json(taken)}),
        "prune": (prune.TASKS, {"days": 1, "batch": SELECTED}),
        "steer": (steer.LOCK, {"ids": running[:10], "low": 0, "high": 0}),
        **reads(),
    }


def reads() -> Mapping[str, tuple[TextClause, dict[str, Any]]]:
    """What the surfaces ask: pages of 60, looking at no more than 60; counts up to 60."""
    unasked = dict.fromkeys(("lock_key", "unique_key", "worker_id", "waits_for", "older_than", "account", "after"))
    bounds = {"most": SELECTED, "looks_at": SELECTED, "offset": 0}
    pages = {
        f"page of {part}, {role}": (page, unasked | bounds | {"role": role, "statuses": list(part)})
        for part, page in lists.PAGES.items()
        for role in (None, "work")
    }
    line = {"id": 1, "role": "work", "account": "deep", "lock_key": "held", "priority": 0}
    line |= {"scheduled_for": "2100-01-01", "most": SELECTED}
    return pages | {
        "counts": (counting.COUNTS, {"most": SELECTED}),
        "depth": (counting.DEPTH, {"most": SELECTED, "look": SELECTED}),
        "history": (tasks.TASK, {"id": 1}),
        "leader": (tasks.LEADER, {"lock_key": "held"}),
        "ahead of the lock": (tasks.AHEAD_OF_LOCK, line),
        "ahead in the account": (tasks.AHEAD_IN_ACCOUNT, line),
        "last completion": (tasks.LAST_COMPLETION, {"role": "work", "looks_at": 1}),
        "workers": (system.WORKERS, {"most": SELECTED}),
    }


def measured(connection: Connection) -> Measured:
    return {name: rolled_back(connection, *statement) for name, statement in statements(connection).items()}


def rolled_back(connection: Connection, statement: TextClause, given: dict[str, Any]) -> Plan:
    savepoint = connection.begin_nested()
    plan = explain(connection, statement, **given)
    savepoint.rollback()
    return plan


def complaints(small: Measured, large: Measured) -> list[str]:
    scans = [f"{name} reads the whole table:\n{p}" for m in (small, large) for name, p in m.items() if reads_all(p)]
    grows = [name for name in small if large[name].pages > 1.5 * small[name].pages + ALLOWED]
    return scans + [f"{n} grows from {small[n].pages} to {large[n].pages} pages:\n{large[n]}" for n in grows]


def reads_all(plan: Plan) -> bool:
    return "worker_tasks" in plan.scanned


def plans(url: str, shape: str, n: int, *, believes: str) -> list[Measured]:
    engine = create_engine(url)
    with engine.connect() as connection:
        if believes == "it is idle":
            analyze_while_idle(connection)
        fill(connection, shape, n)
        taken = [measured(connection)]
        if believes == "nothing, then the truth":
            analyze(connection)
            taken.append(measured(connection))
    engine.dispose()
    return taken


@pytest.mark.parametrize("believes", ["nothing, then the truth", "it is idle"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_statement_reads_the_backlog(clone: Clone, shape: str, believes: str) -> None:
    small = plans(clone(), shape, SMALL, believes=believes)
    large = plans(clone(), shape, LARGE, believes=believes)
    for s, g in zip(small, large, strict=True):
        assert complaints(s, g) == []
