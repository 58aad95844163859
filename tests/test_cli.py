"""The `celeriac` command, as a stranger meets it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from celeriac.cli import main
from celeriac.repair import SWEEPS
from tasks import app
from tests.conftest import ROOT, Servers
from tests.processes import finished
from tests.systems.stack import on_servers


@pytest.fixture
def given(servers: Servers, redis_url: str) -> Iterator[dict[str, str]]:
    """What a command finds: servers of ours, and a database nobody migrated."""
    name = f"celeriac_cli_{os.getpid()}"
    servers.execute(f"CREATE DATABASE {name}")
    urls = {"DATABASE_URL": servers.database(name), "REDIS_URL": redis_url}
    with on_servers(app, urls):
        yield urls
    servers.execute(f"DROP DATABASE {name} WITH (FORCE)")


def celeriac(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


COMMAND = [sys.executable, "-c", "from celeriac.cli import main; main()"]


def test_migrate_check_sweep_and_dispatch(given: dict[str, str]) -> None:
    before = celeriac("check")
    assert before.exit_code == 1
    assert "run `celeriac migrate`" in before.stderr
    assert celeriac("migrate").exit_code == 0
    assert celeriac("migrate").exit_code == 0, "a second time there is nothing to do"
    assert celeriac("check").exit_code == 0
    assert "no role 'no_such_role'" in celeriac("roles", "dispatch", "no_such_role").stderr
    swept = celeriac("sweep", "--all")
    assert [line.split(":")[0] for line in swept.stdout.splitlines()] == list(SWEEPS)
    assert celeriac("roles", "dispatch", "instasite_build").stdout == "instasite_build: 0 tasks published\n"


def test_a_postgres_that_is_too_old_is_told_in_a_line(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celeriac.store.migrate.OLDEST_POSTGRES", 99)
    for command in ("migrate", "check"):
        told = celeriac(command)
        assert (told.exit_code, type(told.exception)) == (1, SystemExit)
        assert re.fullmatch(r"(Error: )?Postgres 1\d\.\d+ is too old: Celeriac needs 99 or later; .*\n", told.stderr)


def test_a_database_newer_than_the_code_is_told_in_a_line(given: dict[str, str]) -> None:
    celeriac("migrate")
    with app.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE celeriac.version SET version_num = 'later_0001', runs_from = NULL")
    for command in ("migrate", "check"):
        told = celeriac(command)
        assert (told.exit_code, type(told.exception)) == (1, SystemExit)
        (line,) = told.stderr.splitlines()
        assert "newer than this code" in line
        assert "later_0001" in line


def test_errors_are_told_in_a_line(given: dict[str, str]) -> None:
    away = {"DATABASE_URL": "postgresql://localhost:1/none", "REDIS_URL": "redis://127.0.0.1:1/0"}
    wrong: list[tuple[list[str], dict[str, str], list[str]]] = [
        (["-A", "nowhere", "check"], given, ["No module named 'nowhere'"]),
        (["roles", "dispatch", "no_such_role"], given, ["run `celeriac migrate`"]),
        (["check"], away, ["Postgres does not answer", "Redis does not answer"]),
    ]
    for arguments, urls, says in wrong:
        with on_servers(app, urls):
            told = celeriac(*arguments)
        assert (told.exit_code, type(told.exception)) == (1, SystemExit)
        assert [part for part in says if part not in told.stderr] == []


@pytest.mark.parametrize(
    "line",
    [
        "tasks list", "tasks show 1", "why 1", "status", "accounts list", "failures list", "roles capacity", "audit",
        "workers list", "alerts list", "locks list", "roles metrics", "schedules list", "dead-letters list",
        "workflows show 0190b3a0-0000-7000-8000-000000000000", "roles reviews", "tokens list", "tasks cancel 1",
        "tasks retry 1", "roles pause instasite_build", "tasks enqueue review",
    ],
)  # fmt: skip
def test_before_the_database_is_ready_each_command_says_what_to_run(given: dict[str, str], line: str) -> None:
    for urls, says in (
        (given, "run `celeriac migrate`"),
        (given | {"DATABASE_URL": "postgresql://localhost:1/none"}, "start it, or check DATABASE_URL"),
    ):
        with on_servers(app, urls):
            told = celeriac(*line.split())
        assert (told.exit_code, len(told.stderr.splitlines())) == (1, 1)
        assert says in told.stderr


def test_the_doctor_asks_nothing_of_what_is_not_there(given: dict[str, str]) -> None:
    told = celeriac("doctor")
    wrong = [line for line in told.stdout.splitlines() if line.startswith("✕")]
    assert (told.exit_code, len(wrong)) == (1, 1)
    assert "the schema: lacks" in wrong[0]
    assert "could not be read" not in told.output
    assert "    run `celeriac migrate`" in told.stdout.splitlines()
    away = {"DATABASE_URL": "postgresql://localhost:1/none", "REDIS_URL": "redis://127.0.0.1:1/0"}
    with on_servers(app, away):
        lines = celeriac("doctor").stdout.splitlines()
    assert [line[:20].partition(":")[0] for line in lines if line[0] != " "] == ["✕ postgres", "✕ redis"]


def test_so_are_settings_that_are_wrong(given: dict[str, str]) -> None:
    """Read as a process starts: no traceback there either."""
    for name, value in {"HEARTBEAT_INTERVAL_MS": "soon", "QM_INSTASITES_BATCH_SIZE": "none"}.items():
        done = finished([*COMMAND, "check"], {**os.environ, **given, name: value})
        assert done.returncode == 1
        assert f"{name}='{value}' is not usable" in done.stderr
        assert "Traceback" not in done.stderr


PROJECT = {
    "shop/__init__.py": "",
    "shop/celery.py": """
from types import SimpleNamespace
from celeriac import Celeriac
app = Celeriac("shop")
app.config_from_object(SimpleNamespace(CELERY_IMPORTS=["shop.imported"]), namespace="CELERY")
app.autodiscover_tasks(["shop.orders"])
""",
    "shop/imported.py": "from celery import shared_task\n@shared_task(role='imported')\ndef run(): ...\n",
    "shop/orders/__init__.py": "",
    "shop/orders/tasks.py": "from celery import shared_task\n@shared_task(role='found', {}='n')\ndef run(n): ...\n",
}


@pytest.mark.parametrize(
    ("option", "status", "says"), [("lock_by", 0, "2 roles"), ("lok_by", 1, "role 'found': there")]
)
def test_commands_know_what_a_worker_would_import(
    option: str, status: int, says: str, given: dict[str, str], tmp_path: Path
) -> None:
    """In Django's layout, where the app lies in the package's module `celery`."""
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("{}", option))
    environ = {**os.environ, **given, "PYTHONPATH": str(ROOT)}
    for subcommand in ("migrate", "check"):
        done = finished([*COMMAND, "-A", "shop", subcommand], environ, tmp_path)
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
        assert says in done.stdout + done.stderr
    if status:
        for celerys in ("worker", "beat"):
            command = [sys.executable, "-m", "celery", "-A", "shop", celerys]
            done = finished(command, environ, tmp_path)
            assert done.returncode == 1
            assert done.stderr.strip() == "Error: role 'found': there is no option 'lok_by'; did you mean 'lock_by'?"
