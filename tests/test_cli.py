"""The `celeriac` command, as a stranger meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from celeriac.sweeps import SWEEPS
from tests.conftest import ROOT, Servers


def celeriac(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from celeriac.cli import main; main()", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, timeout=60, check=False
    )


def test_migrate_check_sweep_and_dispatch(servers: Servers, redis_url: str) -> None:
    servers.execute("CREATE DATABASE celeriac_cli")
    try:
        given = {"DATABASE_URL": servers.database("celeriac_cli"), "REDIS_URL": redis_url}
        before = celeriac("check", **given)
        assert before.returncode == 1
        assert "run `celeriac migrate`" in before.stderr
        assert celeriac("migrate", **given).returncode == 0
        assert celeriac("migrate", **given).returncode == 0, "a second time there is nothing to do"
        assert celeriac("check", **given).returncode == 0
        assert "no role 'no_such_role'" in celeriac("dispatch", "no_such_role", **given).stderr
        swept = celeriac("sweep", "--all", **given)
        assert [line.split(":")[0] for line in swept.stdout.splitlines()] == list(SWEEPS)
        assert celeriac("dispatch", "instasite_build", **given).stdout == "instasite_build: 0 tasks published\n"
    finally:
        servers.execute("DROP DATABASE celeriac_cli WITH (FORCE)")


def test_errors_are_told_in_a_line(servers: Servers, redis_url: str) -> None:
    given = {"DATABASE_URL": servers.database_url, "REDIS_URL": redis_url}
    for arguments, environ, says in (
        (["-A", "nowhere", "check"], {}, "No module named 'nowhere'"),
        (["dispatch", "no_such_role"], {}, "`celeriac check` tells what is wrong"),
        (["check"], {"HEARTBEAT_INTERVAL_MS": "soon"}, "HEARTBEAT_INTERVAL_MS='soon' is not usable"),
        (["check"], {"QM_INSTASITES_BATCH_SIZE": "none"}, "QM_INSTASITES_BATCH_SIZE='none' is not usable"),
    ):
        ended = celeriac(*arguments, **{**given, **environ})
        assert ended.returncode == 1
        assert says in ended.stderr
        assert "Traceback" not in ended.stderr


def test_check_names_what_does_not_answer(redis_url: str) -> None:
    ended = celeriac("check", DATABASE_URL="postgresql://localhost:1/none", REDIS_URL="redis://127.0.0.1:1/0")
    assert ended.returncode == 1
    assert "Postgres does not answer" in ended.stderr
    assert "Redis does not answer" in ended.stderr


def test_celerys_own_command_has_it_as_a_plugin(servers: Servers, redis_url: str, tmp_path: Path) -> None:
    """The entry point is read from the package's metadata; this is what pyproject.toml says of it."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["celery.commands"]
    metadata = tmp_path / "plugged-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[celery.commands]\n" + "".join(f"{k} = {v}\n" for k, v in declared.items())
    )
    given = {"DATABASE_URL": servers.database_url, "REDIS_URL": redis_url, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    command = [sys.executable, "-m", "celery", "-A", "tasks", "celeriac", "check", "--json"]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **given}, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "run `celeriac migrate`" in json.loads(ended.stdout)["problems"][0]
