"""`make matrix` keeps an environment for each other Python for as long as it has what is asked for."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import __main__ as matrix
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
    """Celery's own is for tests that are not among them."""
    matrix.environment("3.99")
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["test"]
    plugins = {one.partition(">=")[0] for one in extra if one.startswith("pytest")} - {"pytest-celery"}
    assert plugins <= set(installed[0])
