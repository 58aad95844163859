"""A role that lists `queues`: a call names one of them, the row keeps it, and each has its own window and passes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, chain, chord
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, Enqueued, Settings, Task, insights
from celeriac.dispatch.passes import Dispatcher
from celeriac.doctor import work
from celeriac.doctor.deploying import against_database
from celeriac.errors import BadArguments, BadValue, ConfigurationError, UnknownRole
from celeriac.insights import why
from celeriac.insights.fleet import condition, system, watched
from celeriac.insights.fleet.one_role import registered
from celeriac.operate import move, policies, steer
from celeriac.schedules.beat import Scheduler
from celeriac.settle import release
from celeriac.store.connections import Database
from celeriac.testing import drain, run
from celeriac.worker.adopter import Adopter
from tests.processes import Rows

Put = Callable[..., Any]

SLOW = "index,index-slow"


@pytest.fixture
def index(app: Celeriac) -> Task[..., Any]:
    @app.task(
        role="index", queues=("index", "index-slow"), fair_by="account", lock_by="lock", unique_by="key", bind=True,
        shared=False,
    )  # fmt: skip
    def index(self: Task[..., Any], account: str = "", lock: str | None = None, key: str | None = None) -> str:
        return str(self.request.delivery_info["routing_key"])

    app.register_roles()
    return index


def row(sent: Enqueued) -> int:
    assert sent.row_id is not None
    return sent.row_id


def lanes(rows: Rows, table: str = "ready") -> dict[str, int]:
    return dict(rows(f"SELECT role, count(*) FROM {table} GROUP BY 1"))


# -- a call ------------------------------------------------------------------------------------------------------------


def test_a_call_waits_in_the_queue_it_names_and_else_in_the_first(index: Task[..., Any], rows: Rows) -> None:
    index.delay("a")
    index.apply_async(("a",), queue="index-slow")
    index.apply_async(("a",), queue="index")
    index.apply_async(("a",), routing_key="index-slow")
    index.app.send_task("index", ("a",), queue="index-slow")
    index.using(queue="index-slow").delay("b")
    index.bulk([("c",), ("d",)], queue="index-slow")
    asyncio.run(index.aapply_async(("e",), queue="index-slow"))
    assert lanes(rows) == {"index": 2, SLOW: 7}
    assert rows("SELECT role, queue, count(*) FROM worker_tasks GROUP BY 1, 2 ORDER BY 2 NULLS FIRST") == [
        ("index", None, 2),
        ("index", "index-slow", 7),
    ]


def test_a_planned_and_a_keyed_call_keep_theirs(index: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    index.apply_async(("a",), queue="index-slow", countdown=3600)
    first = index.apply_async(("a", "lock"), queue="index-slow")
    index.apply_async(("a", "lock"))
    assert lanes(rows, "later") == {SLOW: 1}
    assert lanes(rows, "behind") == {"index": 1}
    assert lanes(rows) == {SLOW: 1}
    assert drain(app=app, with_scheduled=True) == {"completed": 3}
    assert rows("SELECT queue FROM celeriac.history WHERE task_id = :id", id=first.id) == [("index-slow",)]


def test_a_unique_key_is_one_for_all_queues(index: Task[..., Any]) -> None:
    held = index.apply_async(("a",), {"key": "k"}, queue="index-slow")
    again = index.delay("a", key="k")
    assert (again.is_new, again.id) == (False, held.id)


@pytest.mark.parametrize("named", ["other", "celery-slow", "index,index-slow"])
def test_a_queue_that_the_role_does_not_list_is_refused(index: Task[..., Any], rows: Rows, named: str) -> None:
    with pytest.raises(BadArguments, match="its queues are 'index', 'index-slow'"):
        index.apply_async(queue=named)
    with pytest.raises(BadArguments, match="its queues are 'index', 'index-slow'"):
        index.bulk([()], queue=named)
    with pytest.raises(DBAPIError, match="no worker takes its tasks from the queue"):
        rows("SELECT celeriac.enqueue('index', queue => :named)", named=named)
    with pytest.raises(DBAPIError, match="no worker takes its tasks from the queue"):
        rows("INSERT INTO worker_tasks (role, queue) VALUES ('index', :named)", named=named)
    assert rows("SELECT FROM tasks") == []


def test_a_lane_is_no_role_to_enqueue(index: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    with pytest.raises(UnknownRole):
        app.send_task(SLOW)
    with pytest.raises(DBAPIError, match="no role"):
        rows(f"SELECT celeriac.enqueue('{SLOW}')")


def test_sql_names_one_as_python_does(index: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    rows("SELECT celeriac.enqueue('index', '{\"account\": \"a\"}', queue => 'index-slow')")
    rows("SELECT celeriac.enqueue('index', '{\"account\": \"a\"}', queue => 'index')")
    rows("SELECT celeriac.enqueue('index', scheduled_for => now() + interval '1 hour', queue => 'index-slow')")
    rows("INSERT INTO worker_tasks (role, queue) VALUES ('index', 'index-slow'), ('index', 'index'), ('index', NULL)")
    assert lanes(rows) == {"index": 3, SLOW: 2}
    assert lanes(rows, "later") == {SLOW: 1}
    assert drain(app=app) == {"completed": 5}


def test_from_another_code_base_a_call_is_checked_by_what_is_registered(
    index: Task[..., Any], database_url: str, redis_url: str, rows: Rows
) -> None:
    other = Celeriac("other", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)
    other.send_task("index", ("a",), queue="index-slow")
    with pytest.raises(BadArguments, match="its queues are 'index', 'index-slow'"):
        other.send_task("index", ("a",), queue="elsewhere")
    assert lanes(rows) == {SLOW: 1}
    other.close()


def test_links_of_a_workflow_wait_each_in_its_own(index: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    app.set_current()
    chain(index.si("a").set(queue="index-slow"), index.si("b"), index.si("c").set(queue="index-slow")).delay()
    chord([index.si("d").set(queue="index-slow"), index.si("e")], index.si("f").set(queue="index-slow")).delay()
    assert drain(app=app) == {"completed": 6}
    assert rows("SELECT account, queue FROM celeriac.history ORDER BY account") == [
        ("a", "index-slow"), ("b", None), ("c", "index-slow"), ("d", "index-slow"), ("e", None), ("f", "index-slow"),
    ]  # fmt: skip


# -- which is the first ------------------------------------------------------------------------------------------------


def test_a_route_or_the_declaration_says_which_is_the_first(app: Celeriac) -> None:
    app.conf.task_routes = {"routed": {"queue": "b"}}

    @app.task(role="routed", queues=("a", "b"), shared=False)
    def routed() -> None: ...

    assert (routed.role.queue, routed.role.queues) == ("b", ("b", "a"))


def test_a_router_of_calls_is_asked_for_each(app: Celeriac, rows: Rows) -> None:
    def by_size(name: str, args: Any, *_: Any, **__: Any) -> str | None:
        return "big" if name == "measured" and args[0] > 10 else None

    app.conf.task_routes = (by_size,)

    @app.task(role="measured", queues=("small", "big"), shared=False)
    def measured(n: int) -> None: ...

    measured.delay(1)
    measured.delay(11)
    assert lanes(rows) == {"measured": 1, "measured,big": 1}


def test_celery_s_default_queue_may_be_any_of_them(app: Celeriac, rows: Rows) -> None:
    @app.task(role="usual", queues=("first", "celery"), shared=False)
    def usual() -> None: ...

    usual.delay()
    usual.apply_async(countdown=0)
    usual.apply_async(queue="celery")
    assert lanes(rows) == {"usual": 2, "usual,celery": 1}
    app.conf.task_routes = {"another": {"queue": "celery"}}
    with pytest.raises(ConfigurationError, match="name it first"):
        app.task(role="routed", queues=("first", "celery"), shared=False)(usual.run).role  # noqa: B018


# Celery deprecates a task attribute of that name.
@pytest.mark.filterwarnings("ignore:(?s).*The 'queue' task attribute")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queues": "index"}, "queues='index': give a tuple of different queues"),
        ({"queues": ("a", "a")}, "give a tuple of different queues"),
        ({"queues": ("a,b",)}, "give a tuple of different queues"),
        ({"queues": ("a", "b"), "queue": "c"}, "queue='c' is none of its queues=('a', 'b')"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(app: Celeriac, options: dict[str, Any], says: str) -> None:
    def wrong() -> None: ...

    with pytest.raises(ConfigurationError, match=re.escape(says)):
        app.task(role="wrong", shared=False, **options)(wrong).role  # type: ignore[no-untyped-call]  # noqa: B018


# -- passes ------------------------------------------------------------------------------------------------------------


def test_each_queue_has_its_own_window_and_its_accounts_take_turns(
    app: Celeriac, dispatcher: Dispatcher, publisher: Any, rows: Rows
) -> None:
    @app.task(role="even", queues=("even", "even-slow"), fair_by="account", window=4, chunk=1, shared=False)
    def even(account: str) -> None: ...

    app.register_roles()
    even.bulk([("flood",)] * 50, queue="even-slow")
    even.apply_async(("quiet",), queue="even-slow")
    even.bulk([("flood",)] * 50)
    first, slow, _ = even.role.lanes
    dispatcher.dispatch(first)
    dispatcher.dispatch(slow)
    assert {(ticket.role, ticket.queue) for ticket in publisher.published} == {
        ("even", "even"),
        ("even,even-slow", "even-slow"),
    }
    held = dict(rows("SELECT role, sum(cardinality(ids)) FROM tickets GROUP BY 1"))
    assert held == {"even": 4, "even,even-slow": 4}
    assert rows(
        "SELECT 'quiet' = ANY (accounts) FROM tickets WHERE role = 'even,even-slow' AND 'quiet' = ANY (accounts)"
    )


def test_a_lost_task_waits_again_in_its_queue(
    index: Task[..., Any], database: Database, dispatcher: Dispatcher, rows: Rows
) -> None:
    index.apply_async(("a",), queue="index-slow")
    dispatcher.dispatch(index.role.lanes[1])
    token = str(rows.one("SELECT token FROM tickets"))
    with database.transaction() as connection:
        release.release(connection, [token], started=None, kind="rescue", why="lost", by="test", loss=True)
    assert lanes(rows) == {SLOW: 1}


def test_a_pause_holds_all_queues_of_a_role_or_one(index: Task[..., Any], database: Database, rows: Rows) -> None:
    index.delay("a")
    index.apply_async(("a",), queue="index-slow")
    with database.transaction() as connection:
        policies.pause_role(connection, SLOW, by="test")
    assert drain(app=index.app) == {"completed": 1}
    with database.transaction() as connection:
        policies.resume_role(connection, SLOW, by="test")
        policies.pause_role(connection, "index", by="test")
    assert drain(app=index.app) == {}
    with database.transaction() as connection:
        policies.resume_role(connection, "index", by="test")
    assert drain(app=index.app) == {"completed": 1}


def test_a_lane_is_shown_as_paused_with_its_role(
    app: Celeriac, database: Database, database_url: str, redis_url: str, rows: Rows
) -> None:
    """Whatever reads rows of `roles` sees it: alerts, figures, an autoscaler."""

    def declare(to: Celeriac, *queues: str) -> Task[..., Any]:
        @to.task(role="held", queues=queues, aliases=("was",), shared=False)
        def held() -> None: ...

        to.register_roles()
        return held

    def paused() -> set[str]:
        return {role for (role,) in rows("SELECT role FROM celeriac.roles WHERE paused")}

    def steered(verb: Callable[..., Any], role: str) -> None:
        with database.transaction() as connection:
            verb(connection, role, by="test")

    declare(app, "held", "slow").apply_async(queue="slow")
    steered(policies.pause_role, "held")
    assert paused() == {"held", "held,slow", "was", "was,slow"}
    with database.reading() as connection:
        assert "held,slow" not in {row.role for row in watched.oldest_ready(connection)}
        assert [depth.paused for depth in insights.depth(connection, "held,slow")] == [True]
    (trouble,) = work.pauses(app).troubles
    assert "held,slow is paused" in trouble.text
    assert "`celeriac roles resume held`" in trouble.cure
    new = Celeriac("new", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)
    declare(new, "held", "slow", "large")
    new.close()
    assert paused() >= {"held,large", "was,large"}
    with pytest.raises(BadValue, match="'held' is paused with all its queues: resume that"):
        steered(policies.resume_role, "held,slow")
    steered(policies.resume_role, "was")
    for lane in ("held,slow", "was,slow"):
        assert paused() == set()
        steered(policies.pause_role, lane)
        assert paused() == {lane}
        steered(policies.resume_role, lane)


def test_a_lane_that_has_no_row_goes_by_its_role(app: Celeriac, database: Database, rows: Rows) -> None:
    @app.task(role="patient", queues=("patient", "patient-slow"), stale_after=86_400 * 30, shared=False)
    def patient() -> None: ...

    app.register_roles()
    rows("DELETE FROM celeriac.roles WHERE role = 'patient,patient-slow'")
    rows("""
        INSERT INTO worker_tasks (role, queue, status, token, worker_id, worker_pid, last_heartbeat_at) VALUES
            ('patient', 'patient-slow', 'running', gen_random_uuid(), 'w', 1, now() - interval '1 day'),
            ('patient', 'patient-slow', 'claimed', gen_random_uuid(), NULL, NULL, NULL)""")
    assert lanes(rows, "tickets") == {"patient,patient-slow": 2}
    assert rows("SELECT celeriac.recover_stale_tasks(NULL)") == [(0,)]
    assert rows("SELECT running, stale FROM celeriac.backlog('patient,patient-slow')") == [(1, 0)]
    with database.reading() as connection:
        assert condition.silent_workers(connection) == []
        assert {one.queue: one.tickets for one in system.unstarted(connection) if one.tickets} == {"patient-slow": 1}


# -- what becomes of one -----------------------------------------------------------------------------------------------


def test_a_retry_may_move_to_another_queue(app: Celeriac, rows: Rows) -> None:
    @app.task(role="moves", queues=("moves", "moves-slow"), bind=True, shared=False)
    def moves(self: Task[..., Any], *to: str) -> str:
        came_from = str(self.request.delivery_info["routing_key"])
        if to and to[0] != came_from:
            raise self.retry(args=to, queue=to[0], countdown=0)
        return came_from

    app.register_roles()
    assert run(moves, "moves-slow").status == "pending"
    assert lanes(rows, "later") == {"moves,moves-slow": 1}
    drain(app=app, with_retries=True)
    moves.apply_async(("moves",), queue="moves-slow")
    drain(app=app, with_retries=True)
    assert rows("SELECT queue, result FROM celeriac.history ORDER BY id") == [
        ("moves-slow", "moves-slow"), (None, "moves"),
    ]  # fmt: skip


def test_a_retry_that_names_none_stays_and_one_that_names_another_role_s_fails(app: Celeriac, rows: Rows) -> None:
    @app.task(role="stays", queues=("stays", "stays-slow"), bind=True, shared=False, max_retries=1)
    def stays(self: Task[..., Any], to: str | None = None) -> None:
        if self.request.retries == 0:
            raise self.retry(queue=to, countdown=3600) if to else self.retry(countdown=3600)

    app.register_roles()
    stays.apply_async(queue="stays-slow")
    drain(app=app)
    assert lanes(rows, "later") == {"stays,stays-slow": 1}
    result = run(stays, "elsewhere")
    assert "its queues are 'stays', 'stays-slow'" in str(result.error)


def test_a_finished_task_is_retried_in_its_queue(index: Task[..., Any], database: Database, rows: Rows) -> None:
    sent = index.apply_async(("a",), queue="index-slow")
    with database.transaction() as connection:
        steer.cancel(connection, [row(sent)], by="test")
    assert rows("SELECT queue, status FROM worker_tasks") == [("index-slow", "cancelled")]
    with database.transaction() as connection:
        steer.retry(connection, [row(sent)], by="test")
    assert lanes(rows) == {SLOW: 1}
    assert drain(app=index.app) == {"completed": 1}


def test_it_is_steered_like_any_other(index: Task[..., Any], database: Database, rows: Rows) -> None:
    later = index.apply_async(("a",), queue="index-slow", countdown=3600)
    ready = index.apply_async(("b",), queue="index-slow")
    with database.transaction() as connection:
        steer.set_priority(connection, [row(ready)], 7, by="test")
        steer.hasten(connection, [row(later)], by="test")
    assert rows(f"SELECT priority FROM ready WHERE role = '{SLOW}'") == [(7,)]
    assert drain(app=index.app) == {"completed": 2}


def test_psql_moves_what_waits_to_another_queue(index: Task[..., Any], rows: Rows) -> None:
    index.delay("a")
    rows("UPDATE worker_tasks SET queue = 'index-slow'")
    assert lanes(rows) == {SLOW: 1}
    rows("UPDATE worker_tasks SET queue = 'index'")
    assert lanes(rows) == {"index": 1}
    with pytest.raises(DBAPIError, match="no worker takes its tasks from the queue"):
        rows("UPDATE worker_tasks SET queue = 'elsewhere'")


@pytest.mark.parametrize("by_sql", [True, False])
def test_what_becomes_another_role_s_waits_where_that_one_is_served(
    index: Task[..., Any], app: Celeriac, database: Database, rows: Rows, by_sql: bool
) -> None:
    """Its queue stays only where the new role has it as a further one."""

    def handler(account: str = "") -> None: ...

    for role, queues in (("plain", ()), ("same", ("s", "index-slow")), ("first", ("index-slow", "f"))):
        app.task(role=role, queues=queues, shared=False)(handler)
    app.register_roles()
    for role in ("plain", "same", "first"):
        sent = index.apply_async(("a",), queue="index-slow")
        if by_sql:
            rows("UPDATE worker_tasks SET role = :role WHERE id = :id", role=role, id=sent.row_id)
        else:
            with database.transaction() as connection:
                move.move(connection, [row(sent)], role, app.role_declared(role)[1], by="test")
    assert lanes(rows) == {"plain": 1, "same,index-slow": 1, "first": 1}
    assert drain(app=app) == {"completed": 3}


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_why_names_its_queue_and_that_no_worker_serves_it(
    index: Task[..., Any], database: Database, rows: Rows
) -> None:
    rows(
        "INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency)"
        """ VALUES ('w', 'h', 1, '["index"]', 1)"""
    )
    first, slow = index.delay("a"), index.apply_async(("a",), queue="index-slow")
    with database.reading() as connection:
        answer = why(connection, row(slow))
        assert answer.reason == "no_worker"
        assert "no worker listens on the queue 'index-slow'" in answer.headline
        assert why(connection, row(first)).reason != "no_worker"


def test_lists_and_counts_tell_of_a_role_s_queue(index: Task[..., Any], database: Database) -> None:
    index.bulk([("a",)] * 3, queue="index-slow")
    index.delay("a")
    with database.reading() as connection:
        depths = {row.role: (row.queue, row.ready.n, row.pending.n) for row in insights.depth(connection)}
        assert (depths["index"], depths[SLOW]) == (("index", 1, 1), ("index-slow", 3, 3))
        wanted = [insights.Filter(role="index"), insights.Filter(role=SLOW)]
        wanted += [insights.Filter(queue=queue) for queue in ("index-slow", "index")]
        assert [len(insights.list_tasks(connection, one).items) for one in wanted] == [4, 3, 3, 1]


def test_a_rate_is_one_for_all_queues_of_a_role(app: Celeriac, rows: Rows) -> None:
    @app.task(role="rated", queues=("rated", "rated-slow"), rate_limit="3/h", shared=False)
    def rated() -> None: ...

    app.register_roles()
    for _ in range(3):
        rated.delay()
        rated.apply_async(queue="rated-slow")
    assert drain(app=app) == {"completed": 3}


def test_limits_of_one_queue_are_refused(index: Task[..., Any], database: Database) -> None:
    with database.transaction() as connection, pytest.raises(BadValue, match="one for all its queues: give 'index'"):
        policies.set_limits(connection, SLOW, by="test", rate_limit="1/s")
    with database.reading() as connection:
        assert SLOW not in registered(connection)


# -- from elsewhere ----------------------------------------------------------------------------------------------------


def test_a_plain_app_s_message_gets_the_queue_where_it_lay(app: Celeriac, plain: Celery, rows: Rows) -> None:
    @app.task(role="taken", queues=("taken", "taken-slow"), adopt=True, shared=False)
    def taken(n: int) -> None: ...

    app.register_roles()
    plain.send_task("taken", (1,))
    plain.send_task("taken", (2,), queue="taken-slow")
    plain.send_task("taken", (3,), queue="taken-slow", priority=3)
    plain.send_task("taken", (4,), queue="taken")
    Adopter(app, lambda: {"taken", "taken-slow"}).look()
    assert lanes(rows) == {"taken": 2, "taken,taken-slow": 2}


def test_an_entry_of_beat_names_one(index: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    app.conf.beat_schedule = {
        "slow": {"task": "index", "schedule": 3600.0, "options": {"queue": "index-slow"}},
        "usual": {"task": "index", "schedule": 3600.0, "options": {"queue": "index"}},
    }
    beat = Scheduler(app)
    beat.tick()
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() WHERE kind = 'task'")
    beat.tick()
    beat.close()
    assert lanes(rows) == {"index": 1, SLOW: 1}
    app.conf.beat_schedule["slow"]["options"]["queue"] = "elsewhere"
    with pytest.raises(ConfigurationError, match="not 'elsewhere'"):
        Scheduler(app).tick()


def test_check_tells_what_waits_in_a_queue_that_is_listed_no_more(
    index: Task[..., Any], database_url: str, redis_url: str
) -> None:
    index.apply_async(("a",), queue="index-slow")
    new = Celeriac("new", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)

    @new.task(
        shared=False, role="index", queues=("index", "index-large"), fair_by="account", lock_by="lock", unique_by="key"
    )
    def again(account: str = "", lock: str | None = None, key: str | None = None) -> None: ...

    (misfit,) = against_database(new).misfits
    assert "role 'index' has the queue 'index-slow' no more: 1 unfinished task would wait there" in str(misfit)
    assert against_database(index.app).misfits == []
    (misfit,) = against_database(index.app, queues=["index"]).misfits
    assert "waits in the queue 'index-slow', too, which no worker takes" in str(misfit)
    new.close()
