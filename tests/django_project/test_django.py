"""A Django project passes its suite on both; with Celeriac, what it enqueues belongs to its transactions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import psutil
import pytest
from sqlalchemy import Engine

from tests import processes
from tests.conftest import Servers
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows, until

PROJECT = Path(__file__).parent

#: Variables that would tell the project of this run of the tests.
OURS = ("CELERY_", "PYTEST_", "DATABASE_URL", "CELERIAC_")

#: What needs django-celery-beat, which is not there yet for the newest Django.
PERIODIC = ("shop.tests_of_periodic",) if find_spec("django_celery_beat") else ()

pytestmark = pytest.mark.timeout(300)


def surroundings(database_url: str, redis_url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return kept | {
        "SHOP_DATABASE": database_url, "REDIS_URL": redis_url, "DJANGO_SETTINGS_MODULE": "project.settings",
        "PYTHONPATH": f"{PROJECT}{os.pathsep}{ROOT}", **QUICK,
    }  # fmt: skip


@pytest.fixture
def environ(database_url: str, redis_url: str) -> dict[str, str]:
    return surroundings(database_url, redis_url)


@pytest.fixture(scope="module")
def project(servers: Servers) -> Iterator[str]:
    """The name of a database that the project has migrated."""

    def make(engine: Engine) -> None:
        manage(surroundings(engine.url.render_as_string(hide_password=False), servers.redis_url), "migrate")

    with servers.template(make) as name:
        yield name


@pytest.fixture
def database_url(servers: Servers, project: str) -> Iterator[str]:
    with servers.cloned(project) as url:
        yield url


def manage(environ: dict[str, str], *arguments: str) -> str:
    done = processes.finished([sys.executable, "-m", "django", *arguments], environ, PROJECT, timeout=200)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-6000:]}"
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "which",
    [pytest.param("stock", marks=pytest.mark.nightly("stock Celery changes when a release of it does")), "celeriac"],
)
def test_the_projects_suite_passes(environ: dict[str, str], which: str) -> None:
    said = manage({**environ, "SHOP_CELERY": which, "SHOP_EAGER": "yes"}, "test", "shop.tests")
    assert "Ran 6 tests" in said


def test_calls_belong_to_the_transaction_around_them_and_djangos_tasks_are_rows(environ: dict[str, str]) -> None:
    """In a database that Django's runner makes: `migrate` brings the engine's schema to it."""
    said = manage(environ, "test", "shop.tests_of_rows", "shop.tests_of_transactions", "post", *PERIODIC)
    assert f"Ran {52 + 4 * len(PERIODIC)} tests" in said


def test_what_a_testcase_enqueues_runs_in_its_own_transaction(environ: dict[str, str]) -> None:
    assert "Ran 10 tests" in manage(environ, "test", "shop.tests_within")


SEND = """
import django
django.setup()
from django.db import transaction
from shop.models import Order
from shop.tasks import charge
for number in range({requests}):
    try:
        with transaction.atomic():
            Order.objects.create(number=number)
            charge.delay(number)
            if number % 3 == 0:
                raise ValueError
    except ValueError:
        pass
"""


@pytest.mark.parametrize(
    "requests", [150, pytest.param(1_000, marks=pytest.mark.nightly("the same by day, with fewer requests"))]
)
def test_exactly_what_was_committed_runs_whoever_is_killed(
    environ: dict[str, str], tmp_path: Path, rows: Rows, requests: int
) -> None:
    """Twice a pool's process is killed, and then a worker with all of its processes, beside another."""
    command = [sys.executable, "-m", "celery", "-A", "project", "worker", "-l", "INFO", "-c", "2", "--without-mingle"]
    with ExitStack() as stack:
        lost, other = (
            stack.enter_context(processes.process([*command, "-n", f"{name}@h"], environ, tmp_path / f"{name}.log"))
            for name in ("lost", "other")
        )
        for worker in (lost, other):
            until(lambda: " ready." in worker.printed(), "the worker")  # noqa: B023
        send = [sys.executable, "-c", SEND.format(requests=requests)]
        sender = stack.enter_context(processes.process(send, environ, tmp_path / "sender.log"))
        for done, worker in ((requests // 15, lost), (requests // 4, other)):
            until(ran_at_least(rows, done), f"{done} runs")
            psutil.Process(worker.pid).children()[0].kill()
        until(ran_at_least(rows, requests // 2), "half of the runs")
        lost.kill()
        until(lambda: sender.process.poll() is not None, "the sender")
        assert sender.process.poll() == 0, sender.printed()
        until(lambda: not rows("SELECT FROM celeriac.tasks"), "all tasks to end", patience=120)
    committed = [(number,) for number in range(requests) if number % 3]
    assert rows("SELECT DISTINCT number FROM shop_ran ORDER BY number") == committed
    assert rows("SELECT number FROM shop_order WHERE is_paid ORDER BY number") == committed


def ran_at_least(rows: Rows, number: int) -> Callable[[], bool]:
    return lambda: int(str(rows.one("SELECT count(*) FROM shop_ran"))) >= number


@pytest.mark.nightly("a measurement")
@pytest.mark.timeout(900)
def test_a_task_starts_as_soon_after_its_commit_as_after_a_plain_call() -> None:
    """`python -m bench.commits`, the median of its rounds: within 1.5 times."""
    done = processes.finished([sys.executable, "-m", "bench.commits"], dict(os.environ), ROOT, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    ratios = [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines() if "after the commit" in line]
    assert len(ratios) == 3, done.stdout
    assert median(ratios) <= 1.5, done.stdout


#: Two runs of each task, and whose connections they had.
PIDS = """
import django
django.setup()
from shop import tasks
print(*(task.delay().get(timeout=60) for task in ({tasks},) for _ in range(2)))
"""

BY_NIGHT = pytest.mark.nightly("the same in other pools; by day where a task has a process, and where tasks share one")


@pytest.mark.parametrize(
    "pool", ["prefork", "threads", *(pytest.param(pool, marks=BY_NIGHT) for pool in ("gevent", "asyncio"))]
)
def test_connections_are_closed_after_each_task(environ: dict[str, str], tmp_path: Path, rows: Rows, pool: str) -> None:
    command = [sys.executable, "-m", "celery", "-A", "project", "worker", "-l", "INFO", "-c", "1", "-P", pool]
    with processes.process(command, environ, tmp_path / "worker.log") as worker:
        until(lambda: " ready." in worker.printed(), "the worker")
        called = "tasks.pid" if pool == "gevent" else "tasks.pid, tasks.pid_of_coroutine"
        done = processes.finished([sys.executable, "-c", PIDS.format(tasks=called)], environ, PROJECT, timeout=90)
        assert done.returncode == 0, f"{done.stderr}{worker.printed()}"
        assert done.stdout
        for backend in map(int, done.stdout.split()):
            until(is_gone(rows, backend), "it to be closed", patience=10)


def is_gone(rows: Rows, backend: int) -> Callable[[], bool]:
    """Whether Postgres' process of this number has ended."""
    return lambda: not rows("SELECT FROM pg_stat_activity WHERE pid = :pid", pid=backend)
