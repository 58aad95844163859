"""One column: the suites in a process of their own, on servers of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import redis

from celeriac import local
from celeriac.local import Stack
from celeriac.store.connections import Database
from celeriac.store.migrate import migrate
from tests.processes import ROOT

FOLDER = "t/integration/"
#: Of these alone nothing is passed on, for they would name other servers than those of the column.
NAMING_SERVERS = ("CELERY_", "CELERIAC_", "TEST_")

#: What each test came to, by its name without the folder: `test_tasks.py::test_tasks::test_fail`.
Outcomes = Mapping[str, str]


def run(
    suites: Path, name: str, tests: Sequence[str], *, limit: float, whole: float, plugins: Sequence[str] = ()
) -> Outcomes:
    """Of these files or tests. Writes pytest's output beside the suites.

    `limit` holds for a test, `whole` for all of them (seconds).
    """
    outcomes, log = suites / f"{name}.json", suites / f"{name}.log"
    outcomes.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml"]
    command += ["-p", "no:cacheprovider", "-p", "no:rerunfailures"]  # what is tried once more is named here
    command += [f"-p{plugin}" for plugin in ("tests.stock.record", *plugins)]
    command += [f"--outcomes={outcomes}", f"--timeout={limit:g}"]
    command += [f"{FOLDER}{test}" for test in tests]
    with local.join_temporary() as locked, log.open("wb") as output:
        stack = opened(locked)
        migrated(stack)
        process = subprocess.Popen(
            command, cwd=suites, env=environment(suites, stack), stdout=output, stderr=output, start_new_session=True
        )
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(whole)
        finally:
            end(process)
    if not outcomes.exists():
        sys.exit(f"No test was collected: {log}")
    return {test.removeprefix(FOLDER): outcome for test, outcome in json.loads(outcomes.read_text()).items()}


def opened(stack: Stack) -> Stack:
    """The same, with a Redis that wants no password: some of the suites' tests connect by host and port."""
    with redis.Redis.from_url(stack.redis_url) as client:
        client.config_set("requirepass", "")
    address = urlsplit(stack.redis_url)
    return replace(stack, redis_url=f"redis://{address.hostname}:{address.port}/0")


def migrated(stack: Stack) -> None:
    database = Database(stack.database_url)
    migrate(database.engine)
    database.dispose()


def environment(suites: Path, stack: Stack) -> dict[str, str]:
    """As Celery's own continuous integration has it, on Redis."""
    address = urlsplit(stack.redis_url)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(NAMING_SERVERS)}
    return inherited | {
        "PATH": f"{Path(sys.executable).parent}:{inherited['PATH']}",
        "PYTHONPATH": f"{suites}:{ROOT}",
        "TEST_BROKER": stack.redis_url,
        "TEST_BACKEND": stack.redis_url,
        "REDIS_HOST": str(address.hostname),
        "REDIS_PORT": str(address.port),
        "DATABASE_URL": stack.database_url,
        "REDIS_URL": stack.redis_url,
        "WORKER_LOGLEVEL": "INFO",
    }


def end(process: subprocess.Popen[bytes]) -> None:
    """With the processes of its worker's pool, which a test may have left behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
