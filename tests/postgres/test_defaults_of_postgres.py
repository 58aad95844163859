"""What a database, a login or a service says of each session breaks no promise, or is told in a line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, make_url, text

from celeriac import Celeriac, NotReady, Settings
from celeriac.cli import main
from celeriac.errors import ConfigurationError
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from celeriac.store.migrate import refuse_narrow
from celeriac.worker.step import refuse_old_schema
from tasks import app as tasks_app
from tests.conftest import Servers
from tests.postgres.stages import claimed
from tests.processes import Rows
from tests.systems.stack import on_servers

EURO = "€ \U0001f95d"

#: Who says it: `{}` is the setting and its value.
BY_SQL = {"database": "ALTER DATABASE {name} SET {setting} = '{value}'",
          "login": "ALTER ROLE CURRENT_USER IN DATABASE {name} SET {setting} = '{value}'"}  # fmt: skip

WIDE = "celeriac_wide"

Say = Callable[[str, str], None]


@pytest.fixture(params=[*BY_SQL, "service"])
def say(request: pytest.FixtureRequest, servers: Servers, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Say:
    """`say("client_encoding", "LATIN1")`: for each session from now on."""

    def say_it(setting: str, value: str) -> None:
        if request.param == "service":
            escaped = value.replace(" ", "\\ ")
            monkeypatch.setenv("PGOPTIONS", f"-c {setting}={escaped}")
            if setting == "client_encoding":
                monkeypatch.setenv("PGCLIENTENCODING", value)
        else:
            name = make_url(database_url).database
            servers.execute(BY_SQL[request.param].format(name=name, setting=setting, value=value))

    return say_it


def each_pools(app: Celeriac, setting: str) -> set[Any]:
    """What holds in each way in which the engine speaks with Postgres."""
    shown, show = set(), f"SELECT current_setting('{setting}')"
    with app.database.statement() as connection:
        shown.add(connection.execute(text(show)).scalar_one())
        shown.add(connection.exec_driver_sql(show).scalar_one())
    with app.database.transaction() as connection:
        shown.add(connection.execute(text(show)).scalar_one())
    with app.database.reading() as connection:
        shown.add(connection.execute(text(show)).scalar_one())
    with app.database.engine.begin() as connection:
        shown.add(connection.execute(text(show)).scalar_one())
    app.database.limit(lock=5, statement=5)
    with app.database.statement() as connection:
        shown.add(connection.execute(text(show)).scalar_one())
    with app.database.engine.begin() as connection:
        shown.add(connection.execute(text(show)).scalar_one())
    return shown


def run_one(app: Celeriac, database: Database, does: Callable[..., Any], *args: Any) -> list[Any]:
    """Of a task that is enqueued and run: how it ended, and its result."""

    @app.task(role="work", bind=True, shared=False, prompt=False, keep="forever", max_retries=0)
    def work(self: Any, *args: Any) -> Any:
        return does(self, *args)

    app.register_roles()
    work.delay(*args)
    run_ticket(app, work.name, *claimed(database, "work"))
    with app.database.statement() as connection:
        found = connection.exec_driver_sql("SELECT status, result, error_message FROM celeriac.worker_tasks").one()
    return list(found)


# -- encoding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_the_engine_speaks_utf_8_whatever_is_usual(say: Say, app: Celeriac, database: Database, encoding: str) -> None:
    say("client_encoding", encoding)
    assert each_pools(app, "client_encoding") == {"UTF8"}
    assert run_one(app, database, lambda _, euro: euro + EURO, EURO)[:2] == ["completed", EURO + EURO]


def test_an_address_says_nothing_else_either(database_url: str) -> None:
    database = Database(f"{database_url}{'&' if '?' in database_url else '?'}client_encoding=latin1")
    with database.statement() as connection:
        assert connection.exec_driver_sql("SHOW client_encoding").scalar_one() == "UTF8"
    database.dispose()


@pytest.fixture(params=["LATIN1", "SQL_ASCII", "EUC_JP"])
def narrow(request: pytest.FixtureRequest, servers: Servers) -> Iterator[tuple[str, str]]:
    """The encoding, and the address of a database that has it."""
    name = f"celeriac_narrow_{request.param.lower()}"
    servers.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C'")
    yield request.param, servers.database(name)
    servers.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("command", ["migrate", "check"])
def test_a_database_that_cannot_hold_every_text_is_refused_in_a_line(
    narrow: tuple[str, str], servers: Servers, redis_url: str, command: str
) -> None:
    encoding, url = narrow
    with on_servers(tasks_app, {"DATABASE_URL": url, "REDIS_URL": redis_url}):
        told = CliRunner().invoke(main, [command])
    assert (told.exit_code, type(told.exception)) == (1, SystemExit)
    (line,) = told.stderr.splitlines()
    assert f"has the encoding {encoding}" in line
    (cure,) = re.findall(r"`(CREATE DATABASE .*)`", line)
    servers.execute(cure.replace(" name ", f" {WIDE} "))
    try:
        with create_engine(servers.database(WIDE)).connect() as connection:
            refuse_narrow(connection)
    finally:
        servers.execute(f"DROP DATABASE {WIDE} WITH (FORCE)")


# -- isolation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_the_engines_transactions_are_read_committed_whatever_is_usual(say: Say, app: Celeriac, level: str) -> None:
    say("default_transaction_isolation", level)
    assert each_pools(app, "transaction_isolation") == {"read committed"}


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_handler_that_writes_and_tells_its_progress_ends_well(
    say: Say, app: Celeriac, database: Database, rows: Rows, level: str
) -> None:
    say("default_transaction_isolation", level)
    rows("CREATE TABLE public.notes (n int)")

    def does(task: Any, n: int) -> int:
        task.session.execute(text("INSERT INTO public.notes VALUES (:n)"), {"n": n})
        task.progress({"half": True})
        return n

    assert run_one(app, database, does, 7)[:2] == ["completed", 7]
    assert rows("SELECT n FROM public.notes") == [(7,)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_enqueue_is_read_committed_as_well(say: Say, app: Celeriac, rows: Rows, level: str) -> None:
    """On the shortest way there is, prepared or not."""
    say("default_transaction_isolation", level)
    rows("""CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.levels VALUES (current_setting('transaction_isolation')); RETURN NULL; END $$;
        CREATE TABLE public.levels (level text);
        CREATE TRIGGER note AFTER INSERT ON celeriac.tasks FOR EACH ROW EXECUTE FUNCTION note()""")

    @app.task(name="work", shared=False, unique_by="{n}")
    def unique(n: int) -> None: ...

    @app.task(name="other", shared=False)
    def other(n: int) -> None: ...

    for send in (unique, other):
        for n in range(3):
            send.delay(n)
        send.apply_async((8,), countdown=60)
        send.apply_async((9,), task_id=f"named {send.name}")
        send.bulk([(n,) for n in range(10, 13)])
    assert rows("SELECT level, count(*) FROM public.levels GROUP BY level") == [("read committed", 16)]


# -- nothing may be written --------------------------------------------------------------------------------------------


@pytest.fixture
def unwritable(say: Say, database_url: str, redis_url: str) -> Iterator[Celeriac]:
    say("default_transaction_read_only", "on")
    app = Celeriac("reader", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)
    yield app
    app.publisher.close()
    app.database.dispose()


READ_ONLY = (
    r"default_transaction_read_only is on by the (client, so nothing can run: turn it off where that is set$|database"
    r".*`(BEGIN READ WRITE; ALTER (ROLE|DATABASE) .* RESET default_transaction_read_only; COMMIT)`$)"
)


@pytest.mark.parametrize("command", ["migrate", "check", "roles pause instasite_build"])
def test_where_nothing_may_be_written_a_command_says_so_in_a_line(
    unwritable: Celeriac, redis_url: str, command: str
) -> None:
    urls = {"DATABASE_URL": unwritable.database_url, "REDIS_URL": redis_url}
    with on_servers(tasks_app, urls):
        told = CliRunner().invoke(main, command.split())
    assert (told.exit_code, type(told.exception)) == (1, SystemExit)
    (line,) = told.stderr.splitlines()
    assert "Postgres takes no writes (cannot " in line if "pause" in command else re.search(READ_ONLY, line)


def test_where_nothing_may_be_written_nothing_starts_until_the_cure_that_is_told(
    unwritable: Celeriac, rows: Rows
) -> None:
    with pytest.raises(ConfigurationError, match=READ_ONLY) as refused:
        refuse_old_schema(unwritable.database, None)
    if "by the client" in str(refused.value):
        return
    with closing(rows.engine.raw_connection()) as raw, raw.cursor() as cursor:
        cursor.execute(str(re.search(READ_ONLY, str(refused.value))[2]))  # type: ignore[index]
    unwritable.database.dispose()
    refuse_old_schema(unwritable.database, None)


def test_where_nothing_may_be_written_an_enqueue_says_so(unwritable: Celeriac) -> None:
    @unwritable.task(name="work", shared=False)
    def work() -> None: ...

    with pytest.raises(NotReady, match=r"^Postgres takes no writes .*; nothing was enqueued$") as refused:
        work.delay()
    assert "\n" not in str(refused.value)
