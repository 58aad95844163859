"""`make matrix`: what it runs, on which servers, and an environment for each other Python."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import ENGINE, servers
from tests.matrix import __main__ as matrix
from tests.matrix.pooled import LEFT_OUT
from tests.processes import ROOT


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pip was told, by a project in a folder of its own."""
    told: list[list[str]] = []

    def run(command: list[Any], **_: Any) -> subprocess.CompletedProcess[bytes]:
        if "venv" in command:
            (tmp_path / ".cache" / "matrix" / "3.99" / "bin").mkdir(parents=True, exist_ok=True)
        if "pip" in command:
            told.append([str(word) for word in command])
        return subprocess.CompletedProcess(command, 0)

    for name in matrix.SAID:
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    monkeypatch.setattr(matrix, "found", Path)
    monkeypatch.setattr(subprocess, "run", run)
    return told


def test_an_environment_is_made_once_and_anew_when_what_is_asked_for_has_changed(
    installed: list[list[str]], tmp_path: Path
) -> None:
    for _ in range(2):
        assert matrix.environment("3.99") == tmp_path / ".cache" / "matrix" / "3.99" / "bin" / "python"
    assert len(installed) == 1
    for changed, name in enumerate(matrix.SAID, start=2):
        (tmp_path / name).write_text("pytest==9")
        matrix.environment("3.99")
        assert len(installed) == changed


def test_it_has_every_plugin_that_the_engines_tests_are_run_with(installed: list[list[str]]) -> None:
    """Celery's and Django's are for tests that are not among them."""
    matrix.environment("3.99")
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["test"]
    plugins = {one.partition(">=")[0] for one in extra if one.startswith("pytest")} - {"pytest-celery", "pytest-django"}
    assert plugins <= set(installed[0])


def test_what_it_runs_is_there() -> None:
    """Pytest runs none of them if one is not."""
    assert [name for name in (*ENGINE, *LEFT_OUT) if not (ROOT / name.partition("::")[0]).exists()] == []
    for file, _, test in (name.partition("::") for name in LEFT_OUT):
        assert not test or f"def {test}(" in (ROOT / file).read_text()


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_servers_that_are_named_are_known_by_what_they_say_of_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "clusters" / "15" / "bin" / "psql", "psql (PostgreSQL) 15.18")
    monkeypatch.setattr(servers, "CLUSTERS", tmp_path / "clusters")
    postgres = program(tmp_path / "a" / "bin" / "postgres", "postgres (PostgreSQL) 16.14").parent
    redis = program(tmp_path / "r", "Redis server v=8.0.2 sha=00000000:0 malloc=libc bits=64")
    valkey = program(tmp_path / "v", "Valkey server v=8.1.1 sha=00000000:0 malloc=libc bits=64")
    monkeypatch.setenv("MATRIX_POSTGRES", str(tmp_path / "a"))
    monkeypatch.setenv("MATRIX_REDIS", f"{redis}:{valkey}")
    assert servers.postgreses() == {16: postgres}, "a client is no server"
    assert {"Redis 8": redis, "Valkey 8": valkey}.items() <= servers.redises().items()


def test_a_server_that_is_not_there_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "postgreses", dict)
    with pytest.raises(matrix.Missing, match="postgresql-17, or name a folder in MATRIX_POSTGRES"):
        matrix.on_installed(17, "Redis 8")
    monkeypatch.setattr(matrix, "postgreses", lambda: {17: Path("bin")})
    monkeypatch.setattr(matrix, "redises", dict)
    with pytest.raises(matrix.Missing, match="no Redis 8 on the PATH, nor in MATRIX_REDIS"):
        matrix.on_installed(17, "Redis 8")
