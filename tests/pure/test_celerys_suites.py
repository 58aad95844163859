"""`make celery-suites` judges two columns."""

from __future__ import annotations

from tests.stock.verdict import Known, Verdict, known

PLAIN = {"a.py::one": "passed", "a.py::two": "passed", "b.py::skipped": "skipped", "b.py::broken": "failed"}
WHY = {"a.py::two": Known("by design")}


def test_what_passes_on_plain_celery_alone_has_to_be_known() -> None:
    ours = PLAIN | {"a.py::two": "failed"}
    assert Verdict(PLAIN, ours, WHY).is_good
    assert Verdict(PLAIN, ours, {}).unexplained == ["a.py::two"]
    assert not Verdict(PLAIN, ours, {}).is_good


def test_what_is_known_to_differ_may_not_pass() -> None:
    assert Verdict(PLAIN, PLAIN, WHY).outdated == ["a.py::two"]
    assert not Verdict(PLAIN, PLAIN, WHY).is_good


def test_what_differs_only_at_times_may_pass() -> None:
    assert Verdict(PLAIN, PLAIN, {"a.py::two": Known("by chance", always=False)}).is_good


def test_a_known_test_that_was_not_run_is_not_judged() -> None:
    assert Verdict({"a.py::one": "passed"}, {"a.py::one": "passed"}, WHY).is_good


def test_a_test_that_never_ended_or_was_not_met_has_not_passed() -> None:
    assert Verdict(PLAIN, {"a.py::one": "unfinished"}, {}).unexplained == ["a.py::one", "a.py::two"]


def test_both_columns_are_told_by_file() -> None:
    lines = [line.split() for line in Verdict(PLAIN, PLAIN | {"a.py::two": "failed"}, WHY).lines()]
    assert ["a.py", "2", "2", "1"] in lines
    assert ["b.py", "2", "0", "0"] in lines
    assert ["4", "2", "1"] in lines
    assert ["a.py::two:", "by", "design"] in lines


def test_each_known_difference_says_why() -> None:
    assert all(test.startswith("test_") and differs.why for test, differs in known().items())
