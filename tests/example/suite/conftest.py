"""The shop's own tests. They pass whoever runs the tasks: SHOP_CELERY=stock or celeriac, REDIS_URL, DATABASE_URL."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HOME = Path(os.environ.setdefault("SHOP_HOME", tempfile.mkdtemp(prefix="shop-")))
SHOP = Path(__file__).parent.parent

pytest_plugins = ["celery.contrib.pytest"]
if os.environ.get("SHOP_CELERY") == "celeriac":
    pytest_plugins += ["celeriac.testing.contrib"]


def until(condition: Callable[[], Any], what: str, patience: float = 30.0) -> Any:
    """The first true value of `condition`."""
    give_up = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < give_up, f"waited {patience:g} s in vain for {what}"
        time.sleep(0.02)
    return value


@contextmanager
def process(*command: str) -> Iterator[Callable[[], str]]:
    """`celery -A shop …`, and what it has printed."""
    log = HOME / f"{command[0]}.log"
    with log.open("ab") as output:
        line = [sys.executable, "-m", "celery", "-A", "shop", *command, "-l", "INFO"]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SHOP), os.environ.get("PYTHONPATH", "")])}
        started = subprocess.Popen(line, cwd=HOME, env=environ, stdout=output, stderr=output)
    try:
        yield lambda: log.read_text() if started.poll() is None else pytest.fail(log.read_text()[-3000:])
    finally:
        started.terminate()
        try:
            started.wait(20)
        finally:
            started.kill()
            started.wait()


@pytest.fixture(scope="session")
def worker() -> Iterator[Callable[[], str]]:
    """A real one, of two processes."""
    with process("worker", "-Q", "shop,mails,reports", "-c", "2", "-n", "till@shop") as printed:
        until(lambda: " ready." in printed(), "the worker to be ready")
        yield printed


@pytest.fixture(scope="session")
def beat() -> Iterator[Callable[[], str]]:
    with process("beat", "-s", str(HOME / "beat-schedule")) as printed:
        yield printed


@pytest.fixture
def eager() -> Iterator[None]:
    """Tasks run where they are called."""
    from shop.celery import app

    app.conf.update(task_always_eager=True, task_eager_propagates=True)
    yield
    app.conf.update(task_always_eager=False, task_eager_propagates=False)
