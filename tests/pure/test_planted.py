"""tests/planted: each defect can be planted, its test is there, and the rows that it takes away are of the table."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests import planted
from tests.planted.__main__ import CAUGHT, NOT_CAUGHT, chosen, run, sample
from tests.planted.defect import Defect
from tests.processes import ROOT

GOOD = Defect("good", "a.py", "one", "two", "tests/pure/test_planted.py::test_each_can_be_planted")


def test_each_can_be_planted() -> None:
    assert {defect.name: wrong for defect in planted.DEFECTS if (wrong := defect.wrong(ROOT))} == {}


def test_no_two_have_one_name() -> None:
    assert [name for name, n in Counter(defect.name for defect in planted.DEFECTS).items() if n > 1] == []


def test_each_changes_its_file() -> None:
    assert [defect.name for defect in planted.DEFECTS if defect.text == defect.instead] == []


def test_each_row_is_there_and_names_the_test_that_fails() -> None:
    held = planted.held()
    wrong = [
        f"{row}: {defect.test}"
        for row, defects in planted.taken_away().items()
        for defect in defects
        if row not in held or tuple(defect.test.partition("[")[0].split("::")) not in held[row].tests
    ]
    assert wrong == []


def test_rows_that_are_drawn_are_taken_away() -> None:
    """A row that comes into the draw needs a defect that its test was seen to notice: `python -m tests.planted`."""
    assert [row for row in planted.drawn() if row not in planted.taken_away()] == []


@pytest.mark.parametrize(
    ("content", "change", "says"),
    [
        ("one", {}, []),
        ("two", {}, ["its text occurs 0 times in a.py"]),
        ("one and one", {}, ["its text occurs 2 times in a.py"]),
        ("one", {"file": "b.py"}, ["its text occurs 0 times in b.py"]),
        ("one", {"test": "tests/pure/a.py::test_b"}, ["there is no tests/pure/a.py::test_b"]),
    ],
)  # fmt: skip
def test_one_that_cannot_be_planted_says_why(
    tmp_path: Path, content: str, change: dict[str, str], says: list[str]
) -> None:
    (tmp_path / "a.py").write_text(content)
    assert GOOD._replace(**change).wrong(tmp_path) == says


#: A test as it may end where a defect is planted.
ENDS = """
import time
import pytest

@pytest.fixture
def server():
    raise ConnectionError("no server")

@pytest.fixture
def invariants():
    yield
    assert [] == ["violation"]

def test_passes(): pass
def test_notices_at_its_end(invariants): pass
def test_has_no_server(server): pass

@pytest.mark.timeout(0.2)
def test_hangs(): time.sleep(60)
"""


@pytest.mark.nightly("a pytest of its own each")
@pytest.mark.parametrize(
    ("test", "at_setup", "verdict"),
    [
        ("test_passes", "", NOT_CAUGHT), ("test_notices_at_its_end", "", CAUGHT),
        ("test_has_no_server", "", "NOT RUN"), ("test_hangs", "", "NOT RUN"),
        ("test_has_no_server", "no server", CAUGHT), ("test_has_no_server", "syntax error", "NOT RUN"),
        ("test_passes", "no server", NOT_CAUGHT), ("test_hangs", "no server", "NOT RUN"),
    ],
)  # fmt: skip
def test_caught_is_what_a_test_that_ran_notices_or_the_error_that_its_setup_is_to_have(
    tmp_path: Path, test: str, at_setup: str, verdict: str
) -> None:
    (tmp_path / "test_ends.py").write_text(ENDS)
    assert run([f"test_ends.py::{test}"], tmp_path, at_setup=at_setup)[0] == verdict


def test_of_a_night_there_are_others_than_of_the_night_before() -> None:
    day = date(2026, 11, 30)
    assert sample(planted.DEFECTS, 8, day) == sample(planted.DEFECTS, 8, day)
    assert sample(planted.DEFECTS, 8, day) != sample(planted.DEFECTS, 8, day + timedelta(days=1))


def test_those_of_a_name_are_chosen_and_all_where_there_is_none() -> None:
    assert [defect.name for defect in chosen(["a lost settle"])] == ["a lost settle"]
    assert chosen([]) == planted.DEFECTS
