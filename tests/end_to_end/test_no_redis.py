"""`REDIS_URL=none`: Postgres is all there is, and everything works but what is Redis' own, which is refused by name."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from celery import chain, chord

from celeriac import Settings
from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows

NONE = "none"

CELERY = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop"]
CELERIAC = [*CELERY, "celeriac"]


@pytest.fixture
def alone(shop: ModuleType, database_url: str) -> ModuleType:
    """The shop as a caller that has no Redis."""
    app = shop.app
    app.publisher.close()
    del app.publisher
    app.settings = Settings.from_environ({**QUICK, "DATABASE_URL": database_url, "REDIS_URL": NONE})
    app.conf.broker_url = None
    return shop


@pytest.fixture
def environ(database_url: str) -> dict[str, str]:
    return {"DATABASE_URL": database_url, "REDIS_URL": NONE, "PYTHONPATH": str(ROOT), **QUICK}


BY_NIGHT = pytest.mark.nightly("the same in other pools")


@pytest.mark.parametrize(
    "pool", ["prefork", *(pytest.param(pool, marks=BY_NIGHT) for pool in ("asyncio", "solo", "threads"))]
)
def test_work_and_workflows_run_and_a_lone_task_starts_in_time(
    alone: ModuleType, database_url: str, tmp_path: Path, rows: Rows, pool: str
) -> None:
    kind = ("-P", pool, "-c", "2", "-Q", "add,gather,asking,celery")
    with processes.worker(alone.__name__, database_url, NONE, tmp_path / "log", *kind, environ=QUICK) as running:
        assert [r.get(timeout=60) for r in alone.add.bulk((n,) for n in range(50))] == list(range(1, 51))
        assert chain(alone.add.s(1), alone.add.s(2), alone.add.s(3))().get(timeout=60) == 7
        assert chord([alone.add.s(n) for n in range(3)])(alone.gather.s()).get(timeout=60)
        assert alone.asking.delay().get(timeout=60) == "asked"
        started = [alone.add.delay(1) for _ in range(3) if not time.sleep(0.6)]
        for result in started:
            result.get(timeout=60)
        assert "Redis" not in running.printed()
        assert running.stop() == 0
    waited = "SELECT extract(epoch FROM started_at - created_at) FROM worker_tasks WHERE role = 'add' ORDER BY id DESC"
    assert all(float(seconds) < 5 for (seconds,) in rows(f"{waited} LIMIT 3"))
    assert rows("SELECT DISTINCT status, losses FROM worker_tasks") == [("completed", 0)]


def test_what_needs_redis_is_refused_by_name(environ: dict[str, str], tmp_path: Path) -> None:
    for what in (["inspect", "active"], ["control", "shutdown"], ["status"]):
        told = processes.finished([*CELERY, *what], environ)
        assert told.returncode != 0, told
        assert "REDIS_URL=none" in told.stdout + told.stderr
        assert "Traceback" not in told.stdout + told.stderr


def test_a_role_that_adopts_is_refused(environ: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.adopting_shop", "worker"]
    (tmp_path / "adopting_shop.py").write_text(
        'from celeriac import Celeriac\napp = Celeriac("a", adopt=True)\n@app.task(role="old")\ndef old(): ...\n'
    )
    command[4] = "adopting_shop"
    told = processes.refusal(command, environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}, tmp_path / "log")
    assert "REDIS_URL=none" in told
    assert "old" in told


@pytest.mark.usefixtures("alone")
def test_nobody_misses_redis(environ: dict[str, str]) -> None:
    for what in (["check"], ["status"], ["doctor"]):
        told = processes.finished([*CELERIAC, *what], environ)
        said = told.stdout + told.stderr
        assert "does not answer" not in said, said
        assert "Traceback" not in said, said
    assert "there is none (REDIS_URL=none)" in said
