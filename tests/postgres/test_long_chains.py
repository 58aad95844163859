"""A link of a chain costs the same however many follow it, and long chains keep all that short ones promise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError
from celery.result import GroupResult
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.canvas import rests
from celeriac.canvas.rests import LinksGone
from celeriac.insights.fleet.watched import FORGOTTEN
from celeriac.operate import steer, workflows
from celeriac.repair import prune
from celeriac.repair.batch import BATCH
from celeriac.store.connections import Database
from celeriac.store.migrate import ENGINE, configuration
from celeriac.version import SCHEMA
from tests.postgres.logins import PREFIX, Login, login
from tests.postgres.test_retried_workflows import Perhaps
from tests.postgres.test_workflow_faults import ID, steered
from tests.postgres.workflows import declare, run_all, run_once
from tests.processes import Rows

__all__ = ["login"]

pytestmark = pytest.mark.usefixtures("current")

#: Longer than what a row carries and some blocks.
LONG = 45

STORED = "SELECT count(*) FROM celeriac.chain_rests"
STATUSES = "SELECT status, count(*) FROM worker_tasks GROUP BY 1 ORDER BY 1"
LABEL = "SELECT DISTINCT workflow FROM worker_tasks"

#: Bytes of all that a workflow has left: of its rows, and of what is stored beside them.
BYTES = """SELECT (SELECT sum(length(CAST(h AS text))) FROM celeriac.history h)
    + coalesce((SELECT sum(length(CAST(r AS text))) FROM celeriac.chain_rests r), 0)"""

PLACES = """SELECT CAST(ctid AS text) FROM celeriac.chain_rests
WHERE workflow IN (SELECT workflow FROM celeriac.tasks) ORDER BY 1"""
UNNEEDED = """INSERT INTO celeriac.chain_rests (chain, place, workflow, links)
SELECT c.chain, place, CAST(c.chain AS text), '[]'
FROM (SELECT gen_random_uuid() AS chain FROM generate_series(1, :chains)) AS c,
    generate_series(0, :blocks - 1) AS place"""

WORKER = """INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency, resources)
VALUES (:name, 'h', 1, 1, CAST(:resources AS jsonb))"""
OPEN = """INSERT INTO celeriac.tasks (task_id, role, workflow)
SELECT 'open', 'add', workflow FROM celeriac.chain_rests LIMIT 1"""
SILENT = """UPDATE celeriac.workers SET last_heartbeat_at = now() - :seconds * interval '1 second'
WHERE worker_id = 'old'"""
STOPPED = "UPDATE celeriac.workers SET status = 'stopped' WHERE worker_id = 'old'"
RUNS_FROM = "SELECT runs_from FROM celeriac.version"


@pytest.fixture
def tasks(app: Celeriac) -> dict[str, Any]:
    return declare(app, keep="forever")


@pytest.fixture
def sent() -> Iterator[list[str]]:
    """The statements that this process sends, as far as they are of chains' rests."""
    statements: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        if "_rests" in statement:
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield statements
    event.remove(Engine, "before_cursor_execute", note)


def get(result: Any) -> Any:
    alone = {} if isinstance(result, GroupResult) else {"follow_parents": False}
    return result.get(timeout=5, disable_sync_subtasks=False, **alone)


def counting(add: Any, length: int) -> list[Any]:
    """Links that count: the last one's result is their number."""
    return [add.s(0, 1), *(add.s(1) for _ in range(length - 1))]


def left(rows: Rows) -> float:
    """Bytes of what is left, and forget it."""
    size = float(rows.one(BYTES))
    rows("DELETE FROM celeriac.history")
    rows("DELETE FROM celeriac.chain_rests")
    return size


THOUSAND = (pytest.mark.nightly("a thousand links, one by one"), pytest.mark.timeout(600))


@pytest.mark.parametrize(
    "length",
    [13, 14, 21, 22, 23, 30, LONG, 200, pytest.param(1000, marks=THOUSAND)],
)
def test_a_link_costs_the_same_however_long_its_chain_is(app: Celeriac, tasks: Any, rows: Rows, length: int) -> None:
    result = chain(counting(tasks["add"], length))()
    assert len(rows.one("SELECT headers #> '{canvas,chain}' FROM celeriac.tasks")) <= rests.WHOLE
    run_all(app)
    assert get(result) == length
    assert tasks["ran"] == [("add", n, 1) for n in range(length)]
    assert rows(STATUSES) == [("completed", length)]
    long = left(rows) / length
    chain(counting(tasks["add"], 10))()
    run_all(app)
    assert long < 1.5 * left(rows) / 10


def test_the_call_commits_the_whole_chain_or_nothing(app: Celeriac, tasks: Any, database: Database, rows: Rows) -> None:
    for keeps in (False, True):
        with Session(database.engine) as session:
            result = chain(counting(tasks["add"], LONG)).apply_async(session=session)
            (session.commit if keeps else session.rollback)()
        assert (rows.one(STORED) > 0, rows.one("SELECT count(*) FROM worker_tasks")) == (keeps, int(keeps))
    run_all(app)
    assert get(result) == LONG


def test_what_a_handler_enqueues_comes_with_its_outcome(app: Celeriac, tasks: Any, rows: Rows) -> None:
    results = []

    @app.task(role="makes", bind=True, shared=False, prompt=False, max_retries=1)
    def makes(self: Any) -> None:
        results.append(chain(counting(tasks["add"], LONG))())
        if not self.request.retries:
            assert rows.one(STORED) == 0
            raise self.retry(countdown=0)

    app.register_roles()
    makes.delay()
    run_all(app)
    rows("UPDATE worker_tasks SET scheduled_for = now() WHERE status = 'pending'")
    run_all(app)
    assert get(results[1]) == LONG
    assert rows.one("SELECT count(DISTINCT chain) FROM celeriac.chain_rests") == 1


SHAPES = {
    "member of a chord": lambda long, add, total: chord([chain(long), add.s(1, 1), chain(counting(add, 3))], total.s()),
    "member of a group": lambda long, add, _: group(chain(long), add.s(1, 1)),
    "before a chord": lambda long, add, total: chain(*long, group(add.s(1), add.s(2)), total.s()),
    "before a group": lambda long, add, _: chain(*long, group(add.s(1), add.s(2))),
    "around a chord": lambda long, add, total: chain(*long[:20], group(add.s(1), add.s(2)), total.s(), *long[1:]),
    "a body": lambda long, add, total: chord([add.s(1, 1), add.s(2, 2)], chain(total.s(), *long[1:])),
    "of chords": lambda _, add, total: chain(
        *(step for n in range(20) for step in (group(add.si(n, 0), add.si(n, 1)), total.s()))
    ),
    "ends in a chord within one": lambda long, add, total: chord(
        [chain(*long, group(add.s(1), add.s(2)), total.s()), add.s(1, 1)], total.s()
    ),
    "within a chain": lambda long, add, _: chain(chain(*long), chain(*long[1:]), add.s(1)),
    "of long chains in chords": lambda long, _, total: chain(
        *long, group(chain(long[1:]), chain(long[2:])), total.s(), *long[1:]
    ),
    "with callbacks": lambda long, add, _: chain(*(step.on_error(add.s(1)) for step in long)) | add.s(1),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_chain_does_what_it_does_where_rows_carry_all(
    app: Celeriac, tasks: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    done = []
    for whole in (rests.WHOLE, 10**9):
        monkeypatch.setattr(rests, "WHOLE", whole)
        result = SHAPES[shape](counting(tasks["add"], LONG), tasks["add"], tasks["total"]).apply_async()
        run_all(app)
        assert (rows.one(STORED) > 0) is (whole < LONG)
        done.append((get(result), sorted(tasks["ran"]), rows(STATUSES)))
        tasks["ran"].clear()
        left(rows)
    assert done[0] == done[1]


def test_many_chains_are_stored_in_one_statement_and_the_release_is_checked_once(
    app: Celeriac, tasks: Any, sent: list[str], rows: Rows
) -> None:
    group(chain(counting(tasks["add"], LONG)) for _ in range(30))()
    assert [sum(name in one for one in sent) for name in ("begin_rests", "chain_rests")] == [1, 1]
    stored = rows.one(STORED)
    chain(counting(tasks["add"], LONG))()
    assert rows.one(STORED) > stored
    assert sum("begin_rests" in one for one in sent) == 1
    run_all(app)
    assert rows(STATUSES) == [("completed", 31 * LONG)]


# -- when a link fails, or is stopped ----------------------------------------------------------------------------------


def test_behind_a_link_that_failed_all_fail_and_a_retry_goes_on_to_the_end(
    app: Celeriac, tasks: Any, database: Database, rows: Rows
) -> None:
    perhaps = Perhaps(app)
    result = chain(*counting(tasks["add"], 5), perhaps.task.s(), *counting(tasks["add"], LONG)[1:]).on_error(
        tasks["told"].s()
    )()
    run_all(app)
    with pytest.raises(ValueError, match="on purpose"):
        get(result)
    assert rows(STATUSES) == [("completed", 6), ("failed", LONG)]
    failed = rows.one("SELECT task_id FROM worker_tasks WHERE role = 'perhaps'")
    assert [done for done in tasks["ran"] if done[0] == "told"] == [("told", failed)]
    age(rows)
    assert prune.prune_finished(app) == 0, "a retry needs what is stored"
    perhaps.fails = False
    steered(database, steer.retry, rows.one(ID, role="perhaps", status="failed"))
    run_all(app)
    assert get(app.AsyncResult(result.id)) == 5 + LONG - 1


def test_errbacks_are_called_of_links_far_behind(app: Celeriac, tasks: Any, rows: Rows) -> None:
    chain(*counting(tasks["add"], LONG), tasks["fail"].s()).on_error(tasks["told"].s())()
    run_all(app)
    assert tasks["ran"][-2:] == [("fail",), ("told", rows.one("SELECT task_id FROM worker_tasks WHERE role = 'fail'"))]


def test_a_cancelled_workflow_ends_and_nobody_waits_for_its_links(
    app: Celeriac, tasks: Any, database: Database, rows: Rows
) -> None:
    result = chord([chain(counting(tasks["add"], LONG)), tasks["add"].s(1, 1)], tasks["total"].s())()
    for _ in range(4):
        run_once(app)
    assert sum(len(some.changed) for some in workflows.cancel(database, rows.one(LABEL), by="op", why="")) > 0
    ran = len(tasks["ran"])
    run_all(app)
    assert len(tasks["ran"]) == ran
    assert result.state in ("REVOKED", "FAILURE")
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE role = 'add'") == LONG + 1


def test_behind_a_failure_thousands_of_links_are_written_off_with_one_statement(
    app: Celeriac, tasks: Any, sent: list[str], rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block is one link here: a thousand of them are as many as of 8,000 links."""
    monkeypatch.setattr(rests, "CARRIED", 1)
    result = chain(tasks["fail"].s(), *[tasks["add"].s(1)] * 1_100).on_error(tasks["told"].s())()
    assert rows.one(STORED) > sys.getrecursionlimit()
    sent.clear()
    run_all(app)
    with pytest.raises(ValueError, match="on purpose"):
        get(result)
    assert [done[0] for done in tasks["ran"]] == ["fail", "told"]
    assert ["place >=" in one for one in sent] == [False, True]


@pytest.mark.parametrize("is_member", [False, True])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("gone", ["place = 1", "place = 4", "true"])
def test_where_blocks_are_gone_who_waits_for_the_chain_hears_of_it(
    app: Celeriac, tasks: Any, rows: Rows, is_member: bool, fails: bool, gone: str
) -> None:
    long = chain(
        *counting(tasks["add"], 4), (tasks["fail"] if fails else tasks["add"]).s(1), *counting(tasks["add"], LONG)[1:]
    )
    result = (chord([long, tasks["add"].s(1, 1)], tasks["total"].s()) if is_member else long)()
    assert rows.one("SELECT max(place) FROM celeriac.chain_rests") == 4
    rows(f"DELETE FROM celeriac.chain_rests WHERE {gone}")
    run_all(app)
    with pytest.raises((ValueError, LinksGone, ChordError)):
        get(result)
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE completed_at IS NULL") == 0
    completed = rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'completed' AND role = 'add'")
    carried = {"place = 1": 17, "place = 4": 41, "true": 9}[gone]
    assert completed == (4 if fails else carried) + is_member
    failed = rows("SELECT DISTINCT error_message FROM worker_tasks WHERE status = 'failed' AND role <> 'total'")
    assert len(failed) == 1


# -- what handlers do with their chain ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("by", ["task", "chain", "group", "chord"])
def test_links_that_are_replaced_keep_all_that_follows(
    app: Celeriac, tasks: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch, by: str, fails: bool
) -> None:
    add, told, total = tasks["add"], tasks["told"], tasks["total"]
    seen = []

    @app.task(role="replaced", bind=True, shared=False, prompt=False)
    def replaced(self: Any, n: int) -> Any:
        instead = {
            "task": lambda: add.si(n, 1).on_error(told.s()),
            "chain": lambda: chain(add.si(n, 0), add.s(1)).on_error(told.s()),
            "group": lambda: group(add.si(n, 0), add.si(0, 1)),
            "chord": lambda: chord([add.si(n, 0), add.si(0, 1)], total.s()),
        }[by]()  # fmt: skip
        instead.stamp(by=str(n))
        return self.replace(instead)

    @app.task(role="sees", bind=True, shared=False, prompt=False)
    def sees(self: Any, n: Any) -> Any:
        seen.append((n, self.request.stamps, self.request.replaced_task_nesting, bool(self.request.errbacks)))
        return sum(n) if isinstance(n, list) else n

    app.register_roles()
    done = []
    for whole in (rests.WHOLE, 10**9):
        monkeypatch.setattr(rests, "WHOLE", whole)
        links = [*counting(add, 4), *(step for _ in range(4) for step in (replaced.s(), *[sees.s()] * 7))]
        result = chain(*links, tasks["fail"].s() if fails else add.s(1))()
        run_all(app)
        told_of = [("told", "last") if ran == ("told", result.id) else ran for ran in tasks["ran"]]
        done.append((result.state, sorted(told_of), rows(STATUSES), list(seen)))
        tasks["ran"].clear()
        seen.clear()
        left(rows)
    assert done[0] == done[1]
    assert done[0][0] == ("FAILURE" if fails else "SUCCESS")


def test_a_stamp_is_on_all_that_follows(app: Celeriac, tasks: Any) -> None:
    seen = []

    @app.task(role="seen", bind=True, shared=False, prompt=False)
    def see(self: Any, n: int) -> int:
        seen.append(self.request.stamps)
        return n

    app.register_roles()
    made = chain(see.s(1), *(see.s() for _ in range(LONG - 1)))
    made.stamp(tenant="acme")
    made.apply_async()
    run_all(app)
    assert seen == [{"tenant": "acme"}] * LONG


@pytest.mark.parametrize("what", ["ends it", "takes some out", "takes out what the row carries", "adds some"])
def test_a_handler_may_change_what_follows(app: Celeriac, tasks: Any, what: str) -> None:
    """The last entry that it sees stands for all that is stored."""
    carried = []

    @app.task(role="cuts", bind=True, shared=False, prompt=False)
    def cuts(self: Any, n: int) -> int:
        links = self.request.chain
        carried.append(len(links) - 1)
        if what == "ends it":
            self.request.chain = None
        elif what == "adds some":
            links += [tasks["add"].s(100)]
        else:
            del links[1 if what == "takes out what the row carries" else -2 :]
        return n

    app.register_roles()
    result = chain(*counting(tasks["add"], 4), cuts.s(), *counting(tasks["add"], LONG)[1:])()
    run_all(app)
    assert 1 < carried[0] <= rests.CARRIED + 1
    expected = {
        "takes some out": LONG + 1, "takes out what the row carries": LONG + 3 - carried[0], "adds some": LONG + 103,
    }  # fmt: skip
    if what == "ends it":
        assert tasks["ran"] == [("add", n, 1) for n in range(4)]
    else:
        assert get(result) == expected[what]


def test_a_last_link_that_is_read_after_the_handler_is_a_part_as_any_other(app: Celeriac, rows: Rows) -> None:
    """Its unique key is another task's: it fails, and who waits for it hears of it."""
    tasks = declare(app, keep="forever")

    @app.task(role="unique", shared=False, prompt=False, unique_by="n")
    def unique(n: int) -> int:
        return n

    @app.task(role="cuts", bind=True, shared=False, prompt=False)
    def cuts(self: Any) -> int:
        del self.request.chain[1:]
        return 20

    app.register_roles()
    unique.apply_async((20,), countdown=3600)
    result = chain(cuts.s(), *counting(tasks["add"], 1 + 2 * rests.CARRIED)[1:-1], unique.s())()
    assert rows.one(STORED) == 1
    rows("UPDATE celeriac.chain_rests SET links = jsonb_build_array(links -> 0)")
    run_all(app)
    assert tasks["ran"] == []
    assert result.state == "FAILURE"


# -- how long it is kept, and who may write it -------------------------------------------------------------------------


def age(rows: Rows) -> None:
    rows("UPDATE celeriac.chain_rests SET created_at = created_at - interval '5 minutes'")


def test_what_is_stored_goes_with_the_last_row_that_may_need_it(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, keep=None)
    result = chain(counting(tasks["add"], LONG))()
    other = chain(counting(tasks["add"], LONG))()
    stored = rows.one(STORED)
    age(rows)
    assert prune.prune_finished(app) == 0
    assert rows.one(STORED) == stored
    run_all(app)
    rows(OPEN)
    prune.prune_finished(app)
    assert rows.one(STORED) == stored / 2, "of an unfinished workflow it stays"
    rows("DELETE FROM celeriac.tasks")
    age(rows)
    prune.prune_finished(app)
    assert rows.one(STORED) == 0
    assert (result.id, other.id) != (None, None)


def test_all_that_nobody_needs_goes_in_a_sweep(app: Celeriac, tasks: Any, rows: Rows) -> None:
    """Of more chains than a batch has, and of more blocks; what stays is not written."""
    chain(counting(tasks["add"], LONG))()
    rows(UNNEEDED, chains=prune.CHAINS + 10, blocks=BATCH // 50)
    rows(UNNEEDED, chains=1, blocks=2 * BATCH)
    assert prune.prune_finished(app) == 0, "it is of this minute"
    age(rows)
    needed = rows(PLACES)
    assert prune.prune_finished(app) == (prune.CHAINS + 10) * (BATCH // 50) + 2 * BATCH
    assert rows(PLACES) == needed
    run_all(app)
    assert len(tasks["ran"]) == LONG


@pytest.mark.parametrize("how", ["silent", "stopped"])
def test_while_an_older_release_works_a_row_carries_all_and_later_none_starts(
    app: Celeriac, tasks: Any, rows: Rows, how: str
) -> None:
    """It would lose what is stored. What reports itself over HTTP runs no rows."""
    rows(WORKER, name="new", resources=f'{{"schema": "{SCHEMA}"}}')
    rows(WORKER, name="reported", resources="{}")
    rows("UPDATE celeriac.workers SET reported_by = 'a token' WHERE worker_id = 'reported'")
    rows(WORKER, name="old", resources="{}")
    result = chain(counting(tasks["add"], LONG))()
    for _ in range(5):
        run_once(app)
    assert (rows.one(STORED), rows.one(RUNS_FROM)) == (0, "celeriac_0007")
    rows(SILENT, seconds=FORGOTTEN - 60)
    run_once(app)
    assert (rows.one(STORED), rows.one(RUNS_FROM)) == (0, "celeriac_0007"), "a paused process goes on"
    rows(SILENT, seconds=FORGOTTEN + 60) if how == "silent" else rows(STOPPED)
    for _ in range(5):
        run_once(app)
    assert rows.one(STORED) > 0, "one that was called before goes on in the new form"
    assert rows.one(RUNS_FROM) == "celeriac_0008"
    run_all(app)
    assert get(result) == LONG


@pytest.mark.parametrize("revoked", ["INSERT ON TABLE celeriac.chain_rests", "SELECT ON TABLE celeriac.chain_rests"])
def test_a_login_without_the_rights_carries_all_links(login: Login, rows: Rows, revoked: str) -> None:
    """As after a migration until its grants are made again."""
    long = counting(declare(login("worker"))["add"], LONG)
    rows(f"REVOKE {revoked} FROM {PREFIX}_worker")
    chain(long)()
    assert (rows.one(STORED), rows.one("SELECT count(*) FROM worker_tasks")) == (0, 1)
    rows(f"GRANT {revoked} TO {PREFIX}_worker")
    chain(long)()
    assert rows.one(STORED) > 0


def test_not_anybody_may_begin_to_store_links(app: Celeriac, rows: Rows) -> None:
    anybody = "SELECT acl.grantee FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) AS acl "
    assert rows(anybody + "WHERE proname = 'begin_rests' AND acl.grantee = 0") == []


def test_nobody_waits_for_who_has_the_mark_of_the_releases(
    app: Celeriac, tasks: Any, database: Database, rows: Rows
) -> None:
    with database.transaction() as connection:
        connection.exec_driver_sql("UPDATE celeriac.version SET runs_from = runs_from")
        chain(counting(tasks["add"], LONG))()
    assert rows.one(STORED) == 0
    chain(counting(tasks["add"], LONG))()
    assert rows.one(STORED) > 0


def test_the_code_knows_the_newest_revision() -> None:
    from alembic.script import ScriptDirectory

    assert ScriptDirectory.from_config(configuration(ENGINE.versions)).get_current_head() == SCHEMA
