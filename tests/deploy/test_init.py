"""`celeriac init`: what it writes is clean, passes its own tests, and runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from glob import glob
from pathlib import Path

import pytest
import yaml
from celery import _state
from click.testing import CliRunner, Result

from celeriac import Celeriac
from celeriac.cli import deployment, main
from celeriac.cli.init import files
from celeriac.metrics.__main__ import files as of_monitoring
from tests.conftest import Servers
from tests.deploy.test_kubernetes import complaints, read
from tests.processes import ROOT, Rows, process, until

#: In the project's folder, where `tasks` is its own module.
THERE = ["env", "-u", "PYTEST_XDIST_WORKER", "-C"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    assert init(folder).exit_code == 0
    return folder


def init(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["init", str(folder), *options])


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
        run(
            project, "celery", "-A", "tasks", "celeriac", "tasks", "enqueue", "sync", "store=7", "account=acme", **given
        )
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


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What deploys an application of a few roles, one of them switched off by a variable, two in one queue."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set())  # no other app's tasks
    app = Celeriac("shop", set_as_current=False)
    app.conf.task_routes = {"shop.*": {"queue": "shop"}}

    def handler() -> None: ...

    for name in ("shop.one", "shop.two", "sync"):
        app.task(name=name, shared=False)(handler)
    for role in ("Prices/EU", "beat"):
        app.task(role=role, shared=False)(handler)
    app.task(role="mail", aliases=("letter",), enabled_by="SHOP_MAIL", shared=False)(handler)
    app.task(role="index", queues=("index", "index-slow", "shop"), shared=False)(handler)
    for path, text in deployment.files(app, "shop.tasks").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_each_role_is_served_once_by_what_is_deployed(deployed: Path) -> None:
    compose = yaml.safe_load((deployed / "docker-compose.yml").read_text())["services"]
    commands = {name: shlex.split(one["command"]) for name, one in compose.items() if "worker -Q" in str(one)}
    queues = {name: command[command.index("-Q") + 1] for name, command in commands.items()}
    assert queues == {
        "sync": "celery", "beat-2": "beat", "mail": "mail", "prices-eu": "Prices/EU", "shop": "shop",
        "index": "index", "index-slow": "index-slow",
    }  # fmt: skip
    for name, one in compose.items():
        assert one["healthcheck" if name != "migrate" else "command"], name
        assert "NAME" not in str(one).replace("FILENAME", ""), name
    assert {compose[name]["healthcheck"]["test"][-1] for name in queues} == {*queues.values()}
    assert compose["beat"]["environment"]["SHOP_MAIL"] == "${SHOP_MAIL:-true}"
    scaled = (deployed / "deploy" / "kubernetes" / "components" / "keda" / "scaled.yaml").read_text()
    assert re.findall(r"wanted_slots\('+([^']+)'", scaled) == [
        "Prices/EU",
        "beat",
        "sync",
        "index",
        "index,index-slow",
        "mail",
        "index,shop",
        "shop.one",
        "shop.two",
    ]


def test_the_platform_takes_what_is_deployed(deployed: Path) -> None:
    base = deployed / "deploy" / "kubernetes" / "base"
    (kustomization,) = read(base / "kustomization.yaml")
    assert {*kustomization["resources"]} == {path.name for path in base.iterdir()} - {"kustomization.yaml"}
    documents = [one for name in kustomization["resources"] for one in read(base / name)]
    assert complaints(documents) == []
    names = [one["metadata"]["name"] for one in documents if one["kind"] == "Deployment"]
    workers = ["worker-prices-eu", "worker-beat-2", "worker-sync", "worker-mail", "worker-shop", "worker-index"]
    workers += ["worker-index-slow"]
    assert sorted(names) == sorted(["api", "beat", *workers])
    assert of_monitoring() == {name: (deployed / "deploy" / name).read_text() for name in of_monitoring()}


def test_the_command_writes_them_and_overwrites_where_it_is_told(project: Path) -> None:
    def deploy(*options: str) -> Result:
        return CliRunner().invoke(main, ["init", str(project), "--deploy", *options])

    assert deploy().exit_code == 0
    compose = project / "docker-compose.yml"
    assert "worker -Q product_resync" in compose.read_text(), "of the app that -A names, which is the example's"
    compose.write_text("mine")
    refused = deploy()
    assert (refused.exit_code, "say --overwrite" in refused.output, compose.read_text()) == (3, True, "mine")
    assert deploy("--overwrite").exit_code == 0
    assert compose.read_text() != "mine"
    assert init(project, "--overwrite").exit_code == 2


def test_everything_it_writes_is_packed() -> None:
    """By the patterns of the wheel's files, of which `*` matches none that begins with a dot."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["celeriac"]
    packed = {path for pattern in patterns for path in glob(pattern, root_dir=ROOT / "celeriac")}
    assert {f"cli/project/{name}.txt" for name in files()} <= packed
    assert {f"cli/deploy/{path.name}" for path in (ROOT / "celeriac" / "cli" / "deploy").iterdir()} <= packed
    assert {".env.example", ".gitignore"} <= files().keys()
