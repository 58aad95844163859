"""Enqueue by name, from code that does not declare the role: the same row as the declaring code's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from celeriac import Celeriac, Settings
from celeriac.enqueue import intake
from celeriac.errors import BadArguments, EnqueueRefused, UnknownRole
from celeriac.roles import registry
from tests.conftest import Servers
from tests.processes import Rows

# Celery deprecates a task attribute of that name; the role's option is ours.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*The 'priority' task attribute")

#: What a row is, apart from its name and its birth.
CONTENT = """
SELECT role, account, lock_key, unique_key, status, waits_for, priority, kwargs, args, max_retries, max_rounds, timeout
FROM worker_tasks ORDER BY id"""

NewApp = Callable[..., Celeriac]


@pytest.fixture
def new_app(database_url: str, redis_url: str) -> Iterator[NewApp]:
    """Another code base on the same servers."""
    apps: list[Celeriac] = []

    def make(release: int = 0) -> Celeriac:
        settings = Settings(database_url=database_url, redis_url=redis_url, deployment=release)
        apps.append(Celeriac(f"app {len(apps)}", settings=settings, set_as_current=False))
        return apps[-1]

    yield make
    for app in apps:
        app.publisher.close()
        app.database.dispose()


def declares(app: Celeriac, **options: Any) -> Celeriac:
    """The app, declaring `sync`, and what it declares registered."""
    given: Mapping[str, Any] = {"prompt": False, "shared": False} | options

    @app.task(role="sync", **given)
    def sync(account_id: int, store_id: int = 5, kind: str = "full") -> None: ...

    app.register_roles()
    return app


KEYS = {"fair_by": "account_id", "lock_by": "store_id", "unique_by": "{store_id}:{kind}"}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((7,), {}), ((7, 11), {}), ((), {"account_id": 7, "kind": "prices"}), ((7,), {"store_id": 3})],
)
def test_a_row_by_name_is_the_row_of_the_declaring_code(
    new_app: NewApp, rows: Rows, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    declaring = declares(new_app(), **KEYS, priority=4, max_retries=6, max_rounds=2)
    declaring.tasks["sync"].apply_async(args, kwargs)
    rows("UPDATE worker_tasks SET status = 'completed', completed_at = now()")
    other = new_app()
    assert other.send_task("sync", args, kwargs).is_new
    declared, by_name = rows(CONTENT)
    assert by_name == (*declared[:4], "pending", *declared[5:])
    assert other.send_task("sync", args, kwargs).is_new is False


def test_many_by_name_derive_the_same_keys(new_app: NewApp, rows: Rows) -> None:
    declares(new_app(), **KEYS)
    results = new_app().enqueue_many("sync", [(1, 2), {"account_id": 1, "store_id": 2}, (1, 3)])
    assert [r.is_new for r in results] == [True, False, True]
    assert rows("SELECT account, lock_key, unique_key FROM worker_tasks ORDER BY id") == [
        ("1", "store_id:2", "2:full"),
        ("1", "store_id:3", "3:full"),
    ]


def test_arguments_that_do_not_fit_the_registered_handler_are_refused(new_app: NewApp, rows: Rows) -> None:
    declares(new_app())
    other = new_app()
    with pytest.raises(BadArguments, match="missing a required argument: 'account_id'"):
        other.send_task("sync")
    with pytest.raises(BadArguments, match="unexpected keyword argument 'colour'"):
        other.send_task("sync", (1,), {"colour": "red"})
    assert rows.one("SELECT count(*) FROM worker_tasks") == 0


@pytest.mark.parametrize("option", ["fair_by", "lock_by", "unique_by"])
def test_a_key_that_only_the_declaring_code_can_derive_is_refused(new_app: NewApp, rows: Rows, option: str) -> None:
    declares(new_app(), **{option: lambda arguments: arguments["account_id"]})
    with pytest.raises(BadArguments, match=f"{option} is a function"):
        new_app().send_task("sync", (1,))
    assert rows.one("SELECT count(*) FROM worker_tasks") == 0


def test_a_role_that_nobody_registered_is_refused_until_somebody_does(new_app: NewApp, rows: Rows) -> None:
    other = new_app()
    with pytest.raises(UnknownRole):
        other.send_task("sync", (1,))
    assert rows.one("SELECT count(*) FROM worker_tasks") == 0
    declares(new_app())
    assert other.send_task("sync", (1,)).is_new


@pytest.mark.parametrize(("release", "priority"), [(4, 1), (5, 2), (6, 2)])
def test_an_older_release_never_overwrites_a_newer_definition(
    new_app: NewApp, rows: Rows, release: int, priority: int
) -> None:
    declares(new_app(release=5), priority=1)
    declares(new_app(release=release), priority=2)
    assert rows("SELECT (definition ->> 'priority')::int, release FROM celeriac.roles WHERE role = 'sync'") == [
        (priority, max(release, 5))
    ]


def test_registering_again_writes_nothing(new_app: NewApp, rows: Rows) -> None:
    declares(new_app())
    written = rows("SELECT xmin::text, updated_at FROM celeriac.roles ORDER BY role")
    declares(new_app())
    assert rows("SELECT xmin::text, updated_at FROM celeriac.roles ORDER BY role") == written


def test_registering_again_waits_for_nobodys_open_transaction(new_app: NewApp) -> None:
    declares(new_app(), rate_limit="5/m")
    other = new_app()
    with other.database.transaction() as somebody:
        somebody.exec_driver_sql("SELECT FROM celeriac.roles, celeriac.role_limits FOR UPDATE")
        declares(new_app(), rate_limit="5/m")


def test_registering_what_has_changed_waits_for_an_open_transaction_briefly(new_app: NewApp, rows: Rows) -> None:
    declares(new_app())
    other = new_app()
    with other.database.transaction() as somebody:
        somebody.exec_driver_sql("SELECT FROM celeriac.roles FOR UPDATE")
        with pytest.raises(DBAPIError, match="lock timeout"):
            declares(new_app(), priority=9)
    declares(new_app(), priority=9)
    assert rows.one("SELECT definition ->> 'priority' FROM celeriac.roles WHERE role = 'sync'") == "9"


def test_registering_leaves_a_paused_role_paused(new_app: NewApp, rows: Rows) -> None:
    declares(new_app())
    rows("UPDATE celeriac.roles SET paused = true")
    declares(new_app(), priority=9)
    assert rows("SELECT paused, definition ->> 'priority' FROM celeriac.roles WHERE role = 'sync'") == [(True, "9")]


def test_every_option_of_the_definition_that_enqueuing_needs_is_read_back(new_app: NewApp) -> None:
    app = declares(
        new_app(), **KEYS, priority=4, max_retries=None, max_rounds=2, timeout=9, window=7, enabled_by="X",
        priority_range=(0, 9),
    )  # fmt: skip
    declared = app.roles.get("sync")
    assert declared is not None
    role, signature = new_app().role_named("sync")
    needed = (
        "queue",
        "priority",
        "max_retries",
        "max_rounds",
        "timeout",
        "prompt",
        "window",
        "enabled_by",
        "priority_range",
        *KEYS,
    )
    assert {n: getattr(role, n) for n in needed} == {n: getattr(declared.role, n) for n in needed}
    assert signature.describe() == declared.signature.describe()
    assert dataclasses.is_dataclass(role)


@contextmanager
def away_for_all_but(session: Session, servers: Servers) -> Iterator[None]:
    """Postgres lets only this one's transaction go on."""
    name, pid = session.execute(text("SELECT current_database(), pg_backend_pid()")).one()
    others = f"SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> {pid}"
    servers.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    servers.execute(others)
    try:
        yield
    finally:
        servers.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


def test_a_kick_that_cannot_look_its_role_up_takes_no_accepted_task_back(
    new_app: NewApp, rows: Rows, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "BELIEVED", 0.0)
    declares(new_app(), prompt=True)
    other = new_app()
    with Session(other.database.engine) as session:
        other.send_task("sync", [7], session=session)
        with away_for_all_but(session, servers):
            session.commit()
    assert rows("SELECT kwargs FROM worker_tasks") == [({"account_id": 7},)]


# -- written to the view -----------------------------------------------------------------------------------------------


def test_an_inserted_row_is_by_the_rules_of_its_role(new_app: NewApp, rows: Rows) -> None:
    """As a call's. What it says itself stays; arguments that fit no handler give no keys."""
    declares(new_app(), **KEYS, priority=4, max_retries=6, max_rounds=2).tasks["sync"].delay(7, 11)
    insert = "INSERT INTO worker_tasks (role, args, kwargs, lock_key) VALUES ('sync', {}, '{}', {})"
    rows(insert.format("NULL", '{"account_id": 8, "store_id": 12}', "NULL"))
    rows(insert.format("""'[9, 13, "prices"]'""", "{}", "'mine'"))
    rows(insert.format("NULL", '{"wrong": 1}', "NULL"))
    content = "account, lock_key, unique_key, priority, max_retries, max_rounds"
    assert rows(f"SELECT {content} FROM worker_tasks ORDER BY id") == [
        ("7", "store_id:11", "11:full", 4, 6, 2), ("8", "store_id:12", "12:full", 4, 6, 2),
        ("9", "mine", "13:prices", 4, 6, 2), ("", None, None, 4, 6, 2),
    ]  # fmt: skip
    with pytest.raises(DBAPIError, match="duplicate key"):
        rows(insert.format("NULL", '{"account_id": 9, "store_id": 12}', "NULL"))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ({"task_id": ""}, "sync: task_id='': give a text that is not empty, or none"),
        ({"task_id": "é" * 501}, "give a text of at most 1000 bytes without NUL"),
        ({"account": "x" * 1001}, "give a text of at most 1000 bytes without NUL"),
    ],
)
def test_an_inserted_row_that_no_surface_could_ask_for_is_refused(
    new_app: NewApp, rows: Rows, text: dict[str, str], right: str
) -> None:
    declares(new_app())
    (column,) = text
    with pytest.raises(DBAPIError, match=right):
        rows(f"INSERT INTO worker_tasks (role, {column}) VALUES ('sync', :{column})", **text)


def test_a_pass_by_hand_hands_out_what_sql_has_enqueued_with_a_lock(new_app: NewApp, rows: Rows) -> None:
    declaring = declares(new_app(), **KEYS)
    rows("""SELECT celeriac.enqueue('sync', '{"account_id": 7}')""")
    assert declaring.dispatch("sync") == 1


# -- declared here, and with more rules elsewhere ----------------------------------------------------------------------


def stub(app: Celeriac, **options: Any) -> Any:
    """The task of an app that does not serve it."""

    @app.task(role="sync", shared=False, **options)
    def sync(account_id: int, store_id: int = 5, kind: str = "full") -> None: ...

    return sync


def test_a_declaration_that_says_less_takes_the_keys_that_sql_knows_of(
    new_app: NewApp, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read once in a while, and stay when a worker that does not serve the role starts."""
    declares(new_app(), **KEYS)
    other, reads = new_app(), []
    here = stub(other)
    look_up = registry.look_up
    monkeypatch.setattr(registry, "look_up", lambda *given: reads.append(given) or look_up(*given))
    here.delay(7, 11)
    here.delay(8, 12)
    other.register_roles(served=[])
    assert rows("SELECT account, lock_key, unique_key FROM worker_tasks ORDER BY id") == [
        ("7", "store_id:11", "11:full"), ("8", "store_id:12", "12:full")
    ]  # fmt: skip
    assert len(reads) == 1
    assert rows.one("SELECT definition ->> 'lock_by' FROM roles WHERE role = 'sync'") == "store_id"


def test_rules_that_cannot_be_read_now_are_those_that_were_read_last(
    new_app: NewApp, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row can be written all the same: by the connection that stays out of the pool."""
    declares(new_app(), **KEYS)
    here = stub(new_app())
    here.delay(7, 11)
    monkeypatch.setattr(intake.time, "monotonic", lambda now=intake.time.monotonic: now() + 2 * intake.BELIEVED)

    def full(*_: Any) -> None:
        raise OperationalError("", {}, Exception("FATAL: sorry, too many clients already"))

    monkeypatch.setattr(registry, "look_up", full)
    here.delay(7, 12)
    assert rows("SELECT lock_key FROM worker_tasks ORDER BY id") == [("store_id:11",), ("store_id:12",)]


@pytest.mark.parametrize("release", [0, 7], ids=["of the same release", "of a newer one"])
@pytest.mark.parametrize("served", [[], None, ["sync"]], ids=["serves nothing", "says nothing", "serves it"])
def test_a_stub_takes_no_key_away(new_app: NewApp, rows: Rows, release: int, served: list[str] | None) -> None:
    """Whatever registers it, by its calls no more than in SQL, and whoever comes first."""
    key = "SELECT definition ->> 'lock_by' FROM roles WHERE role = 'sync'"
    declares(new_app(), **KEYS)
    other = new_app(release=release)
    here = stub(other)
    other.register_roles(served=served)
    here.delay(7, 11)
    assert (rows.one(key), rows("SELECT lock_key FROM worker_tasks")) == ("store_id", [("store_id:11",)])
    rows("DELETE FROM roles WHERE role = 'sync'")
    other.register_roles(served=[])
    declares(new_app(), **KEYS)
    assert rows.one(key) == "store_id"


def test_a_handler_that_does_something_gives_a_key_up(new_app: NewApp, rows: Rows) -> None:
    declares(new_app(), **KEYS)
    other = new_app()

    @other.task(role="sync", shared=False)
    def sync(account_id: int, store_id: int = 5, kind: str = "full") -> int:
        """Says what it got."""
        return account_id

    other.register_roles(served=["sync"])
    assert rows.one("SELECT definition ->> 'lock_by' FROM roles WHERE role = 'sync'") is None


@pytest.mark.parametrize(
    ("release", "lock_key"), [(0, "older"), (1, None), (2, "kind:full")], ids=["older", "of the same", "newer"]
)
def test_a_declaration_that_contradicts_is_refused_unless_a_release_is_the_newer(
    new_app: NewApp, rows: Rows, release: int, lock_key: str | None
) -> None:
    declares(new_app(release=1), **KEYS)
    here = stub(new_app(release=release), lock_by="kind")
    if lock_key is None:
        with pytest.raises(EnqueueRefused, match="lock_by='store_id' by the code that serves it"):
            here.delay(7, 11)
        assert rows("SELECT FROM worker_tasks") == []
    else:
        here.delay(7, 11)
        assert rows("SELECT lock_key FROM worker_tasks") == [("store_id:11" if lock_key == "older" else lock_key,)]
