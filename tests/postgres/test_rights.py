"""The least-privilege Postgres roles, tried with real logins: each does its work and nothing beyond it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, insights
from celeriac.cli import within_celery
from celeriac.cli.up import sign_in_code
from celeriac.dispatch import parking
from celeriac.errors import BadValue, ConfigurationError, NotAllowed
from celeriac.operate import audit, enqueuers, policies, sessions, steer
from celeriac.operate.allowed import Allowed
from celeriac.repair import SWEEPS, history, sweep
from celeriac.roles import limits
from celeriac.roles.role import Role
from celeriac.store.connections import Database
from celeriac.store.grants import ADMIN, WORKER, grant
from celeriac.worker.panel import Panel
from models.stores import ANALYTICS
from tests.conftest import Servers
from tests.postgres import stages
from tests.postgres.logins import PREFIX, Login, denied, login
from tests.processes import Rows

__all__ = ["login"]

#: Where a task can be.
ROOMS = ("tasks", "ready", "ready_0", "later", "behind", "parked", "tickets", "locks", "looks", "intake", "history",
    "history_rest")  # fmt: skip

#: Statements that no enqueue-only login may run, one for each way in.
FORBIDDEN = [
    "SELECT * FROM worker_tasks",
    "SELECT * FROM celeriac.worker_tasks",
    *(f"SELECT * FROM celeriac.{room}" for room in ROOMS),
    "SELECT count(*) FROM celeriac.roles",
    "INSERT INTO worker_tasks (task_id, role) VALUES ('x', 'sync')",
    "INSERT INTO celeriac.tasks (task_id, role) VALUES ('x', 'sync')",
    "INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id) VALUES (0, 'sync', '', 0, now(), 1)",
    "UPDATE worker_tasks SET priority = 9",
    "UPDATE celeriac.ready SET priority = 9",
    "DELETE FROM worker_tasks",
    "DELETE FROM celeriac.tasks",
    "SELECT * FROM celeriac.api_tokens",
    "SELECT * FROM celeriac.audit",
    "SELECT * FROM celeriac.enqueuers",
    "DELETE FROM celeriac.enqueuers",
    "SELECT * FROM celeriac.dead_letters",
    "SELECT * FROM celeriac.adopted",
    "SELECT * FROM instasites",
    "SELECT * FROM v_worker_capacity",
    "SELECT * FROM celeriac.v_worker_capacity",
    "SELECT celeriac.hand_over('{k}')",
    "SELECT celeriac.hold('{1}', false)",
    "SELECT celeriac.leave('{1}')",
    "SELECT celeriac.cancel('{1}', 'x', 'x', 'x')",
    "SELECT celeriac.bind('sync', '[]', '{}')",
    "SELECT recover_stale_tasks(1)",
    "SELECT celeriac.recover_stale_tasks(1)",
    "CREATE TABLE mine (id int)",
    "CREATE TABLE celeriac.mine (id int)",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "ALTER FUNCTION celeriac.enqueue RESET search_path",
]


def test_an_enqueue_only_login_enqueues_and_nothing_else(login: Login, rows: Rows) -> None:
    database = login("enqueue").database
    with database.transaction() as connection:
        made = connection.execute(text("SELECT * FROM celeriac.enqueue('sync', '[7]')")).one()
        again = connection.execute(text("SELECT * FROM celeriac.enqueue('sync', '[7]')")).one()
    assert (made.is_new, again) == (True, (made.id, made.task_id, False))
    assert rows("SELECT unique_key, enqueued_by FROM worker_tasks") == [("7", f"sql:{PREFIX}_login_enqueue")]
    assert {statement: denied(database, statement) for statement in FORBIDDEN} == dict.fromkeys(FORBIDDEN, "42501")


def test_a_limited_login_enqueues_its_roles_only(login: Login, rows: Rows, app: Celeriac) -> None:
    """Until it is freed; other logins are not limited by it."""
    database, mine = login("enqueue").database, f"{PREFIX}_login_enqueue"
    ask = "SELECT is_new FROM celeriac.enqueue('sync', jsonb_build_array({}))"

    def does(*words: str) -> str:
        done = CliRunner().invoke(within_celery, ["logins", *words], obj=SimpleNamespace(app=app))
        assert done.exit_code == 0, done.output
        return done.stdout

    does("limit", mine, "--role", "other", "--role", "another")
    assert denied(database, ask.format(1)) == "42501"
    assert rows(ask.format(1)) == [(True,)]
    does("limit", mine, "--role", "sync")
    with database.transaction() as connection:
        assert connection.exec_driver_sql(ask.format(2)).scalar_one()
    assert denied(database, "SELECT celeriac.enqueue('other')") == "42501"
    assert mine in does("list")
    does("free", mine)
    assert denied(database, "SELECT celeriac.enqueue('other')") == "42704"
    assert "no login is limited" in does("list")
    assert rows("SELECT action, before, after FROM audit WHERE kind = 'enqueuer' ORDER BY id") == [
        ("limit", None, {"roles": ["another", "other"]}),
        ("limit", {"roles": ["another", "other"]}, {"roles": ["sync"]}),
        ("free", {"roles": ["sync"]}, None),
    ]


def test_a_limited_login_enqueues_with_its_account_keys_and_priorities(login: Login, rows: Rows, app: Celeriac) -> None:
    database = login("enqueue").database
    allowed = Allowed.of(accounts=["acme*"], keys=["acme:*"], priorities=(0, 5))
    with app.database.transaction() as connection:
        enqueuers.limit(connection, f"{PREFIX}_login_enqueue", allowed, by="ann")
    ask = "SELECT is_new FROM celeriac.enqueue('sync', '[1]', {})"
    own = {"account": "acme-1", "unique_key": "acme:1", "priority": 5}

    def call(**options: object) -> str:
        return ask.format(", ".join(f"{name} => '{value}'" for name, value in (own | options).items()))

    with database.transaction() as connection:
        assert connection.exec_driver_sql(call(task_id="acme:t", lock_key="acme:l")).scalar_one()
    other = ({"account": "x"}, {"lock_key": "x"}, {"unique_key": "x"}, {"task_id": "x"}, {"priority": 6})
    assert {denied(database, call(**options)) for options in other} == {"42501"}
    assert denied(database, ask.format("account => 'acme', priority => 0")) == "42501", "its unique key is derived"
    assert rows("SELECT account FROM worker_tasks") == [("acme-1",)]


@pytest.mark.parametrize(("login_name", "roles"), [("", ["sync"]), ("a\nb", ["sync"]), ("anna", []), ("anna", [" "])])
def test_who_cannot_be_limited_is_refused(app: Celeriac, rows: Rows, login_name: str, roles: list[str]) -> None:
    with pytest.raises(BadValue), app.database.transaction() as connection:
        enqueuers.limit(connection, login_name, Allowed.of(roles), by="ann")
    assert rows("SELECT FROM celeriac.enqueuers") == []


def test_a_login_nobody_granted_anything_enqueues_nothing(
    app: Celeriac, servers: Servers, database_url: str, rows: Rows
) -> None:
    """Without the roles having been made, too."""
    stranger = f"{PREFIX}_stranger"
    servers.execute(f"CREATE ROLE {stranger} LOGIN PASSWORD 'secret'")
    url = make_url(database_url).set(username=stranger, password="secret")
    database = Database(url.render_as_string(hide_password=False))
    try:
        assert denied(database, "SELECT celeriac.enqueue('sync')") == "42501"
    finally:
        database.dispose()
        servers.execute(f"DROP ROLE {stranger}")


def test_what_the_callers_search_path_holds_is_not_what_the_function_means(login: Login, rows: Rows) -> None:
    """A caller who could shadow a table or a function would act with the owner's rights."""
    database = login("enqueue").database
    with database.transaction() as connection:
        connection.exec_driver_sql("CREATE TEMP TABLE roles (role text, definition jsonb, parameters jsonb)")
        connection.exec_driver_sql("INSERT INTO roles VALUES ('mine', '{}', '[]')")
        connection.exec_driver_sql("SET LOCAL search_path = pg_temp, public")
        with pytest.raises(DBAPIError, match="no role 'mine'"):
            connection.exec_driver_sql("SELECT celeriac.enqueue('mine')")


def test_a_worker_login_does_a_workers_work_but_steers_nobody(login: Login, rows: Rows, app: Celeriac) -> None:
    worker = login("worker")
    app.tasks["sync"].delay(7)
    worker.register_roles()
    assert worker.dispatcher.dispatch(Role(name="sync")) == 1
    ((row, token),) = rows("SELECT id, token::text FROM worker_tasks")
    (task,) = stages.started(worker.database, [row], token, role="sync")
    assert stages.settled(worker.database, stages.outcome(task, "failed", kind="failed", error="boom")) == {row}
    assert {name: sweep(worker, name) for name in SWEEPS}
    for statement in (
        "SELECT * FROM celeriac.api_tokens",
        "UPDATE celeriac.account_policies SET weight = 9",
        "UPDATE celeriac.account_policies SET paused = false",
        "INSERT INTO celeriac.account_policies (account, weight) VALUES ('x', 9)",
        "SELECT * FROM celeriac.audit",
        "INSERT INTO celeriac.audit (by, action, kind, target) VALUES ('x', 'x', 'x', 'x')",
        "DELETE FROM celeriac.roles",
        "DELETE FROM celeriac.role_limits",
        "INSERT INTO celeriac.enqueuers (login, roles, by) VALUES ('x', '{sync}', 'x')",
        "UPDATE celeriac.version SET version_num = 'x'",
        "DROP TABLE celeriac.tasks",
        "DROP VIEW celeriac.worker_tasks",
    ):
        assert denied(worker.database, statement) == "42501"


def test_a_worker_login_keeps_to_limits_and_says_who_may_set_them(login: Login, rows: Rows, app: Celeriac) -> None:
    worker = login("worker")
    with app.database.transaction() as connection:
        policies.set_limits(connection, "sync", by="ann", rate_limit="1/h", timeout=5)
    with worker.database.transaction() as connection:
        assert [limits.take(connection, "sync", 2) for _ in range(2)] == [1, 0]
    rows('UPDATE celeriac.roles SET definition = definition || \'{"rate_limit": "9/m"}\'')
    with worker.database.transaction() as connection:
        limits.register(connection, ["sync"])
    with pytest.raises(NotAllowed, match="by the HTTP API, or by the command line with a login of the admins"):
        worker.control.rate_limit("sync", "10/m")
    assert Panel(SimpleNamespace(app=worker)).time_limit(None, "sync", soft=3) == {"error": audit.NOT_ALLOWED}
    assert rows("SELECT rate_limit, timeout FROM celeriac.role_limits") == [("9/m", None)]


def test_a_worker_login_parks_what_is_paused_and_brings_it_back(login: Login, rows: Rows, app: Celeriac) -> None:
    worker = login("worker")
    rows("INSERT INTO worker_tasks (task_id, role, account) VALUES ('t', 'sync', 'acme')")
    for paused, where in ((True, "account"), (False, None)):
        with app.database.transaction() as connection:
            policies.set_account(connection, "acme", by="ann", paused=paused)
        with worker.database.transaction() as connection:
            parking.park(connection, "sync", ["acme"], 10)
            parking.unpark(connection, 10)
        assert rows.one("SELECT waits_for FROM worker_tasks") == where


def test_a_worker_login_keeps_history_s_days_and_the_ring(
    login: Login, rows: Rows, app: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days are made ahead and dropped when they are over; a sealed segment is emptied and truncated."""
    worker = login("worker")
    history.add_days(app)
    rows("SELECT add_history_day(CAST(now() - interval '40 days' AS date))")
    rows("""DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE ' || max(inhrelid::regclass::text) FROM pg_inherits
        WHERE inhparent = 'history'::regclass AND inhrelid <> 'history_rest'::regclass); END $$""")
    rows("INSERT INTO worker_tasks (task_id, role) SELECT i, 'sync' FROM generate_series(1, 3) i")
    rows("UPDATE ring SET seg = 1")
    assert (sweep(worker, "history"), sweep(worker, "prune"), sweep(worker, "ring")) == (1, 1, 3)
    assert rows.one("SELECT pg_relation_size('ready_0')") == 0


def test_a_worker_login_deletes_a_subreddit_and_the_audit_trail_has_its_schedule(login: Login, rows: Rows) -> None:
    """Into which workers may write nothing themselves."""
    worker = login("worker").database
    rows("INSERT INTO subreddits (id, name) VALUES (1, 'python')")
    rows("""INSERT INTO celeriac.scheduled_jobs (name, target, kwargs, cron_expression)
        VALUES ('daily', 'crawl_subreddit', '{"subreddit_id": 1}', '@daily')""")
    with worker.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM subreddits")
    assert rows("SELECT by, action, kind, why FROM celeriac.audit") == [
        (f"{PREFIX}_login_worker", "delete", "schedule", "r/python was deleted")
    ]


def test_a_worker_login_refreshes_the_applications_views(login: Login, rows: Rows) -> None:
    """As a handler does within its attempt; from Postgres 17 on that is a right of its own."""
    database = login("worker").database
    with database.transaction() as connection:
        for view in ANALYTICS:
            connection.exec_driver_sql(f"REFRESH MATERIALIZED VIEW {view}")
    assert denied(database, f"DROP MATERIALIZED VIEW {ANALYTICS[0]}") == "42501"


def test_an_admin_login_steers_and_only_adds_to_the_audit_trail(login: Login, rows: Rows, app: Celeriac) -> None:
    admin, task = login("admin").database, app.tasks["sync"].delay(7).row_id
    with admin.transaction() as connection:
        steer.cancel(connection, [task], by="ann").one()
        steer.retry(connection, [task], by="ann").one()
        policies.set_account(connection, "acme", by="ann", weight=2)
        assert len(insights.audit_trail(connection)) == 3
        assert insights.history(connection, task)
    for statement in ("DELETE FROM {}", "UPDATE {} SET by = 'bob'", "TRUNCATE {}", "DROP TABLE {}"):
        assert denied(admin, statement.format("celeriac.audit")) == "42501"


def test_an_admin_login_prints_the_link_of_celeriac_up_run_after_run(login: Login) -> None:
    admin = login("admin").database
    for _ in range(2):
        code = sign_in_code(admin)
        with admin.transaction() as connection:
            assert sessions.use_code(connection, code)


def test_every_table_of_the_engine_is_for_workers_or_expressly_not(login: Login, rows: Rows) -> None:
    """Partitions of days to come, too; and nobody is told to leave alone what is not there."""
    reach = dict(
        rows(
            """SELECT relname, has_table_privilege(:worker, oid, 'SELECT') FROM pg_class
            WHERE relnamespace = 'celeriac'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')""",
            worker=f"{PREFIX}_worker",
        )
    )
    assert {name for name, may in reach.items() if not may} == {name for name, may in WORKER.items() if not may}
    assert {*WORKER, *ADMIN, *ROOMS} <= set(reach)


def test_granting_again_changes_nothing_and_a_wrong_prefix_is_refused(login: Login, app: Celeriac, rows: Rows) -> None:
    granted = "SELECT oid::regclass::text, relacl::text FROM pg_class WHERE relacl IS NOT NULL ORDER BY oid"
    before = rows(granted)
    with app.database.transaction() as connection:
        assert grant(connection, PREFIX) == [f"{PREFIX}_{part}" for part in ("enqueue", "worker", "admin")]
    assert [(name, set(acl.strip("{}").split(","))) for name, acl in rows(granted)] == [
        (name, set(acl.strip("{}").split(","))) for name, acl in before
    ]
    with pytest.raises(ConfigurationError, match="prefix"), app.database.transaction() as connection:
        grant(connection, "x; DROP TABLE worker_tasks")


@pytest.fixture
def migrates(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`celeriac migrate` with these logins."""

    def run(*logins: str) -> Result:
        monkeypatch.setenv("CELERIAC_LOGINS", " ".join(logins))
        words = ["migrate", "--with-grants", "--role-prefix", PREFIX]
        return CliRunner().invoke(within_celery, words, obj=SimpleNamespace(app=app))

    return run


def address(url: str, part: str, password: str = "secret", user: str = "itself", **other: Any) -> str:
    made = make_url(url).set(username=f"{PREFIX}_{user}", password=password, **other)
    return f"{part}={made.render_as_string(hide_password=False)}"


def why_not(refused: Result) -> str:
    assert refused.exit_code != 0, refused.output
    return f"{refused.exception} {refused.output}"


@pytest.mark.usefixtures("login")
def test_migrate_makes_the_logins_that_it_is_given(
    migrates: Callable[..., Result], database_url: str, rows: Rows
) -> None:
    """Once more with another password as well; Postgres sees no password, and the owner's login stays its own."""
    for password in ("one's", "%another"):
        done = migrates(*(address(database_url, part, password, f"{part}_itself") for part in ("worker", "admin")))
        assert f"They let in {PREFIX}_worker_itself, {PREFIX}_admin_itself." in done.output
        assert password not in done.output
    kept = "SELECT rolpassword LIKE 'SCRAM-SHA-256$%' FROM pg_authid WHERE rolname LIKE :like"
    assert rows(kept, like=f"{PREFIX}\\_%\\_itself") == [(True,), (True,)]
    database = Database(address(database_url, "worker", "%another", "worker_itself").partition("=")[2])
    assert denied(database, "SELECT FROM celeriac.api_tokens") == "42501"
    with database.statement() as connection:
        assert connection.execute(text("SELECT count(*) FROM worker_tasks")).scalar_one() == 0
    database.dispose()
    own = make_url(database_url).set(password="x").render_as_string(hide_password=False)
    for wrong, why in (
        (f"worker={own}", "owns the tables"), ("owner=postgresql://a:b@c/d", "give enqueue, worker, admin"),
        ("worker=postgresql://a@c/d", "a login is not usable"), ("worker=hunter2", "a login is not usable"),
    ):  # fmt: skip
        refused = migrates(wrong)
        assert why in why_not(refused)
        assert "hunter2" not in refused.output


@pytest.mark.usefixtures("login")
def test_a_login_of_another_server_or_database_is_not_made(
    migrates: Callable[..., Result], database_url: str, rows: Rows
) -> None:
    """Such as compose's own, where DATABASE_URL alone names another server."""
    for elsewhere in ({"host": "postgres.elsewhere"}, {"database": "another"}):
        assert "name the same host and database" in why_not(migrates(address(database_url, "worker", **elsewhere)))
    assert rows("SELECT FROM pg_roles WHERE rolname = :name", name=f"{PREFIX}_itself") == []


@pytest.mark.usefixtures("login")
def test_a_login_has_one_role_the_last_that_it_was_given(
    migrates: Callable[..., Result], database_url: str, rows: Rows
) -> None:
    for part in ("admin", "worker", "enqueue"):
        assert migrates(address(database_url, part)).exit_code == 0
        assert rows(
            "SELECT roleid::regrole::text FROM pg_auth_members WHERE member = CAST(:name AS regrole)",
            name=f"{PREFIX}_itself",
        ) == [(f"{PREFIX}_{part}",)]
    worker = address(database_url, "worker")
    assert migrates(worker, worker).exit_code == 0
    for other in (address(database_url, "admin"), address(database_url, "worker", "another")):
        assert "twice" in why_not(migrates(worker, other))


@pytest.mark.usefixtures("login")
@pytest.mark.parametrize(
    "made",
    [
        "CREATE ROLE {itself} SUPERUSER", "CREATE ROLE {itself} CREATEROLE", "CREATE ROLE {itself} BYPASSRLS",
        "CREATE ROLE {itself} REPLICATION", "CREATE ROLE {itself} IN ROLE pg_read_all_data",
        "CREATE ROLE {itself}; ALTER TABLE celeriac.beats OWNER TO {itself}",
        "CREATE ROLE {itself}; ALTER SCHEMA celeriac OWNER TO {itself}",
        "CREATE ROLE {itself}_owner; ALTER TABLE celeriac.beats OWNER TO {itself}_owner; "
        "CREATE ROLE {itself} IN ROLE {itself}_owner",
    ],
)  # fmt: skip
def test_who_is_not_limited_by_grants_is_no_login(
    migrates: Callable[..., Result], database_url: str, rows: Rows, made: str
) -> None:
    owner = rows.one("SELECT quote_ident(session_user)")
    rows(made.format(itself=f"{PREFIX}_itself"))
    refused = migrates(address(database_url, "worker"))
    rows(f"ALTER TABLE celeriac.beats OWNER TO {owner}; ALTER SCHEMA celeriac OWNER TO {owner}")
    assert f"no grant limits {PREFIX}_itself" in why_not(refused)
