"""`celeriac init`: what it writes is clean, passes its own tests, and runs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from glob import glob
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from celeriac.cli import main
from celeriac.cli.init import files
from tests.conftest import Servers
from tests.processes import ROOT, Rows, process, until

#: In the project's folder, where `tasks` is its own module.
THERE = ["env", "-u", "PYTEST_XDIST_WORKER", "-C"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    assert init(folder).exit_code == 0
    return folder


def init(folder: Path) -> Result:
    return CliRunner().invoke(main, ["init", str(folder)])


def run(folder: Path, *command: str, **environ: str) -> str:
    """What it prints, which is to succeed."""
    given = [f"{name}={value}" for name, value in environ.items()]
    done = subprocess.run(
        [*THERE, str(folder), *given, sys.executable, "-m", *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_clean_and_its_tests_pass(project: Path, servers: Servers, redis_url: str) -> None:
    run(project, "ruff", "check", "--isolated", "--extend-select", "ANN,ARG,B,I,RET,SIM,UP", ".")
    run(project, "ruff", "format", "--isolated", "--check", ".")
    given = {"DATABASE_URL": servers.database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    assert "3 passed" in run(project, "pytest", "-p", "pytest_celeriac", "-p", "no:cacheprovider", **given)


def test_its_worker_completes_a_task_of_each_role(
    project: Path, database_url: str, redis_url: str, rows: Rows, tmp_path: Path
) -> None:
    given = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    command = [*THERE, str(project), sys.executable, "-m", "celery", "-A", "tasks", "worker", "-c", "1"]
    with process(command, given, tmp_path / "worker.log") as worker:
        run(project, "celery", "-A", "tasks", "celeriac", "enqueue", "sync", "store=7", "account=acme", **given)
        done = "SELECT role FROM worker_tasks WHERE status = 'completed' ORDER BY role"
        until(lambda: rows(done) == [("report",), ("sync",)] or worker.process.poll() is not None, "both tasks")
        assert worker.process.poll() is None, worker.printed()


def test_a_second_time_it_refuses_and_changes_nothing(project: Path) -> None:
    (project / "tasks.py").write_text("mine")
    (project / "README.md").unlink()
    refused = init(project)
    assert (refused.exit_code, "tasks.py" in refused.output) == (3, True)
    assert (project / "tasks.py").read_text() == "mine"
    assert not (project / "README.md").exists()


def test_everything_it_writes_is_packed() -> None:
    """By the patterns of the wheel's files, of which `*` matches none that begins with a dot."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["celeriac"]
    packed = {path for pattern in patterns for path in glob(pattern, root_dir=ROOT / "celeriac")}
    assert {f"cli/project/{name}.txt" for name in files()} <= packed
    assert {".env.example", ".gitignore"} <= files().keys()
