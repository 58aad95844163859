"""Two tiers of tests: by day every promise, by night what takes its time, for a reason; and where the time goes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import again, nightly, tiers
from tests.parts import Part, run
from tests.processes import ROOT, finished

#: Those that the suite's conftest and pyproject.toml name.
PLUGINS = [f"-p{name}" for name in ("xdist.plugin", "pytest_timeout", "pytest_rerunfailures", "tests.conftest")]

TESTS = """
import pytest

def test_a_promise(): pass

@pytest.mark.nightly({why})
def test_at_full_size(): pass
"""


def collected(folder: Path, *options: str, why: str = '"takes a minute"') -> str:
    """What pytest says of a file with a test of each tier, under this suite's conftest."""
    (folder / "test_both.py").write_text(TESTS.format(why=why))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *PLUGINS, "--collect-only", "-q", *options]
    done = finished(command, os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    return done.stdout + done.stderr


def test_by_day_the_promises_run_and_by_night_the_rest(tmp_path: Path) -> None:
    by_day, by_night = collected(tmp_path, str(tmp_path)), collected(tmp_path, "--nightly", str(tmp_path))
    assert "test_a_promise" in by_day
    assert "test_at_full_size" not in by_day
    assert "test_at_full_size" in by_night
    assert "test_a_promise" not in by_night


def test_a_test_that_is_named_runs_by_day(tmp_path: Path) -> None:
    assert "1 test collected" in collected(tmp_path, f"{tmp_path}/test_both.py::test_at_full_size")


@pytest.mark.parametrize("why", ["", '""', "3"])
def test_nothing_runs_by_night_without_a_reason(tmp_path: Path, why: str) -> None:
    assert "say why it runs by night" in collected(tmp_path, str(tmp_path), why=why)


def test_a_folder_that_outgrows_its_limit_by_half_is_named() -> None:
    at_most = tiers.LIMITS["pure"] * tiers.SLACK
    assert tiers.over({"pure": at_most}, 1.0) == []
    (line,) = tiers.over({"pure": at_most + 1, "api": 0.1}, 1.0)
    assert "tests/pure" in line
    assert tiers.over({"pure": at_most + 1}, 1.1) == []  # on a slower machine


def test_every_folder_of_tests_has_a_limit() -> None:
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/*/**/test_*.py")}
    assert folders - {"stock"} == tiers.LIMITS.keys()
    assert tiers.over({"new": 1.0}, 1.0) != []


def test_time_is_summed_by_test_and_by_folder() -> None:
    took = [("tests/a/x.py::t", 1), ("tests/a/x.py::t", 2), ("tests/b/y.py::u", 4)]
    tests = tiers.seconds(SimpleNamespace(nodeid=name, duration=n) for name, n in took)
    assert tests == {"tests/a/x.py::t": 3, "tests/b/y.py::u": 4}
    assert tiers.by_folder(tests) == {"a": 3, "b": 4}
    shown = "\n".join(tiers.table(tests, 1.0))
    assert shown.index("tests/b/y.py::u") < shown.index("tests/a/x.py::t")


def test_parts_all_run_and_one_that_fails_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    parts = [Part("good", ["true"]), Part("bad", ["sh", "-c", "echo why; exit 3"]), Part("last", ["true"])]
    for at_once in (1, 3):
        assert run(parts, at_once) == 1
        printed = capfd.readouterr().out
        assert "why" in printed
        assert [line.split()[0] for line in printed.splitlines()[-3:]] == ["passed", "FAILED", "passed"]
    assert run(parts[:1]) == 0


def test_what_the_night_runs_is_there() -> None:
    places = [word for part in nightly.PARTS for word in part.command if word.startswith("tests/")]
    assert places
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ([], "something else"),
        ([f"tests/a.py::test_{n}" for n in range(again.MOST + 1)], f"more than {again.MOST}"),
        (["tests/postgres/test_races.py::test_a"], "a race was found"),
    ],
)
def test_what_says_more_than_that_a_machine_was_busy_is_not_run_again(failed: list[str], why: str) -> None:
    assert why in again.refusal(failed)
    assert not again.refusal(["tests/a.py::test_a"])
