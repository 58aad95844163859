"""Commands of the pages that are run in a copy of the folder, with smaller numbers, or by hand."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from celeriac.cli import main
from tests.deploy import by_hand
from tests.deploy.by_hand import BY_HAND
from tests.deploy.finishing import finish
from tests.deploy.surroundings import surroundings
from tests.processes import ROOT

#: In a copy of the folder: they write what is committed anew.
WRITING = {
    "python -m celeriac.metrics": ("grafana", "prometheus"),
    "python deploy/manifests.py": ("kubernetes",),
}

#: Which of their numbers are smaller here.
SHRUNK = {
    "celeriac workers simulate --workers 1000 --accounts 1000000 --hours 24 --seconds 20": {
        "1000": "10", "1000000": "500", "24": "1"
    }
}  # fmt: skip


def test_what_makes_files_makes_those_that_are_committed(venv: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    for command, folders in WRITING.items():
        for folder in folders:
            for path in made(tmp_path / "deploy" / folder):
                path.unlink()
        done = finish(command, surroundings(venv), tmp_path)
        assert done.returncode == 0, done.stdout
        for folder in folders:
            assert contents(tmp_path / "deploy" / folder) == contents(ROOT / "deploy" / folder)


def made(folder: Path) -> list[Path]:
    """What is not written by hand."""
    return [path for path in folder.rglob("*.*") if "overlays" not in path.parts and path.suffix != ".md"]


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", SHRUNK)
def test_a_command_that_takes_too_long_ends_well_with_smaller_numbers(command: str) -> None:
    words = [SHRUNK[command].get(word, word) for word in shlex.split(command)]
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, result.output


def test_what_is_run_by_hand_could_be(venv: Path) -> None:
    given = surroundings(venv)
    assert [wrong for command in BY_HAND for wrong in by_hand.wrong_with(command, given)] == []
    for wrong in (
        "make tests", "make coverage T=tests/nowhere.py", "python -m tests.nowhere", "kubectl delete job nobody", "ls",
    ):  # fmt: skip
        assert by_hand.wrong_with(wrong, given), wrong
