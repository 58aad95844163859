"""A sender whose database is not there yet is told what to run, in a line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import celery.exceptions
import pytest
from sqlalchemy.orm import Session

from celeriac import Celeriac, ConfigurationError, NotReady, Settings, local
from celeriac.api.problems import from_exception
from celeriac.store.failures import is_restart
from tests import processes
from tests.conftest import ROOT, Servers
from tests.processes import until

UNMIGRATED = (
    r'^the database has not the schema of this release \((relation|schema) ".*" does not exist\): '
    r"run `celeriac migrate`; "
)
AWAY = r"^Postgres cannot be reached \(.*Connection refused\): start it, or check DATABASE_URL; nothing was enqueued$"
MISSING = r'^.*database "nonesuch" does not exist: create it and run `celeriac migrate`, or check DATABASE_URL; '

Send = Callable[[Celeriac], Any]


@pytest.fixture
def fresh(servers: Servers) -> Iterator[str]:
    """A database nobody migrated."""
    with servers.cloned() as url:
        yield url


@pytest.fixture
def sender(redis_url: str) -> Iterator[Callable[[str], Celeriac]]:
    made: list[Celeriac] = []

    def new(url: str) -> Celeriac:
        app = Celeriac("sender", settings=Settings(database_url=url, redis_url=redis_url), set_as_current=False)

        @app.task(name="work", shared=False)
        def work(n: int) -> None: ...

        made.append(app)
        return app

    yield new
    for app in made:
        app.publisher.close()
        if "database" in app.__dict__:
            app.database.dispose()


SENDS = {
    "delay": lambda app: app.tasks["work"].delay(1),
    "later": lambda app: app.tasks["work"].apply_async((1,), countdown=60),
    "bulk": lambda app: app.tasks["work"].bulk([(1,), (2,)]),
    "by name": lambda app: app.send_task("elsewhere", (1,)),
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_database_nobody_migrated(sender: Callable[[str], Celeriac], fresh: str, send: Send) -> None:
    with pytest.raises(NotReady, match=UNMIGRATED) as told:
        send(sender(fresh))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_postgres_that_is_not_there(sender: Callable[[str], Celeriac], send: Send) -> None:
    with pytest.raises(NotReady, match=AWAY) as told:
        send(sender("postgresql://127.0.0.1:1/none"))
    assert isinstance(told.value, celery.exceptions.OperationalError), "as Celery says of a broker that is away"
    assert from_exception(told.value).status_code == 503


def test_a_database_that_does_not_exist(sender: Callable[[str], Celeriac], servers: Servers) -> None:
    with pytest.raises(NotReady, match=MISSING):
        sender(servers.database("nonesuch")).tasks["work"].delay(1)


def test_a_callers_own_transaction_on_another_database(
    sender: Callable[[str], Celeriac], fresh: str, database_url: str
) -> None:
    other = sender(fresh)
    with Session(other.database.engine) as session, pytest.raises(NotReady, match=UNMIGRATED):
        sender(database_url).tasks["work"].using(session=session).delay(1)


def test_what_a_handler_met_is_still_a_restart_of_postgres(sender: Callable[[str], Celeriac]) -> None:
    with pytest.raises(NotReady) as told:
        sender("postgresql://127.0.0.1:1/none").send_task("elsewhere")
    because: Any = told.value.because
    because.orig.of_celeriac = True
    assert is_restart(told.value)


def test_nothing_of_sql_is_printed(fresh: str, redis_url: str) -> None:
    program = "from tests.end_to_end.ordinary import unnamed; unnamed.delay(1)"
    done = processes.finished([sys.executable, "-c", program], {"DATABASE_URL": fresh, "REDIS_URL": redis_url})
    assert done.stderr.splitlines()[-1].startswith("celeriac.errors.NotReady: the database has not the schema")
    assert "INSERT" not in done.stderr
    assert "sqlalche.me" not in done.stderr


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("", "Redis did not take it, leaving it alone for 5 s: "),
        (
            "import celeriac.local as l\ndef join(**_): raise l.LocalStackError('It needs the wheel')\nl.join = join\n",
            "No wake-up for work could be sent; the workers' next poll makes up for it: It needs the",
        ),
    ],
    ids=["redis away", "no redis and no extra"],
)
def test_a_short_program_without_redis_enqueues_and_says_so_in_a_line(
    before: str, says: str, database_url: str
) -> None:
    """Its kicks are sent while it ends, when nothing can be imported any more."""
    program = (
        f"{before}from celeriac import Celeriac\napp = Celeriac('short')\n"
        "@app.task(name='work')\ndef work(): ...\nprint(work.delay().id)"
    )
    environ = {"DATABASE_URL": database_url} | ({} if before else {"REDIS_URL": "redis://127.0.0.1:1/0"})
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environ, text=True, capture_output=True)
    assert (done.returncode, len(done.stdout)) == (0, 37)
    (line,) = done.stderr.splitlines()
    assert line.startswith(says)


@pytest.mark.parametrize("wrong", ["nonsense", "mysql://h:secret@nowhere.invalid/x"])
def test_an_address_of_no_postgres(sender: Callable[[str], Celeriac], wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^DATABASE_URL names no Postgres: give postgresql://") as told:
        sender(wrong).tasks["work"].delay(1)
    assert "secret" not in str(told.value)


def test_no_servers_and_no_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def join(**_: Any) -> None:
        raise local.LocalStackError("The embedded Postgres needs the wheel: pip install …")

    monkeypatch.setattr(local, "join", join)
    app = Celeriac("sender", settings=Settings(), set_as_current=False)

    @app.task(name="work", shared=False)
    def work(n: int) -> None: ...

    with pytest.raises(ConfigurationError, match=r"^The embedded Postgres needs the wheel: pip install …$"):
        app.tasks["work"].delay(1)


@pytest.mark.parametrize("command", [["worker", "-c", "1"], ["beat"]])
def test_neither_worker_nor_beat_starts_on_it(command: list[str], fresh: str, redis_url: str, tmp_path: Path) -> None:
    given = {"DATABASE_URL": fresh, "REDIS_URL": redis_url}
    args = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.ordinary", *command]
    with processes.process(args, given, tmp_path / "log") as started:
        until(lambda: started.process.poll() is not None, "it to refuse")
        printed = started.printed()
    assert started.process.poll() == 1
    assert "does not start: the schema lacks celeriac_0001" in printed
    assert "run `celeriac migrate`" in printed
    assert "Traceback" not in printed
    assert "SELECT" not in printed
    assert "DELETE" not in printed
