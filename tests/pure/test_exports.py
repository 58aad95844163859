"""Lists as files: what is in them is read back as it was, and no cell is a formula."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from celeriac.insights import Page
from celeriac.insights.tasks import exports

texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
values = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), texts)


def task(**given: Any) -> dict[str, Any]:
    return dict.fromkeys(exports.NAMES) | given


def read_back(lines: list[str]) -> list[list[str]]:
    return list(csv.reader(io.StringIO("".join(lines), newline="")))


@given(st.lists(texts, max_size=5), values)
def test_a_csv_is_read_back_and_no_text_in_it_is_a_formula(errors: list[str], priority: Any) -> None:
    found = [task(error_message=error, priority=priority) for error in errors]
    names, *rows = read_back(list(exports.lines("csv", [Page(found, None)])))
    assert names == list(exports.NAMES)
    for error, row in zip(errors, rows, strict=True):
        told = row[exports.NAMES.index("error_message")]
        assert told in (error, f"'{error}")
        assert not told.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


def test_what_begins_like_a_formula_gets_an_apostrophe_and_a_number_stays_one() -> None:
    for text in ("=1+1", "+1", "-1", "@x", "\t=1", "\r=1"):
        assert exports.cell(text) == f"'{text}"
    assert [exports.cell(value) for value in (-5, 1.5, None, "a=1", {"a": 1})] == ["-5", "1.5", "", "a=1", '{"a": 1}']


@given(st.lists(st.tuples(texts, st.integers(-(2**63), 2**63 - 1)), max_size=5))
def test_each_line_of_ndjson_is_its_task(given: list[tuple[str, int]]) -> None:
    at = datetime(2026, 11, 22, tzinfo=UTC)
    found = [task(account=account, id=number, created_at=at) for account, number in given]
    lines = list(exports.lines("ndjson", [Page(found, None)]))
    assert all(line.isascii() and line.endswith("\n") and line[:-1].isprintable() for line in lines)
    told = [json.loads(line) for line in lines]
    assert [(one["account"], one["id"]) for one in told] == given
    assert {one["created_at"] for one in told} <= {"2026-11-22T00:00:00+00:00"}


def test_a_file_goes_on_from_page_to_page_up_to_its_end_or_says_that_it_is_not_all() -> None:
    asked: list[tuple[int, str | None]] = []

    def read(limit: int, after: str | None) -> Page:
        asked.append((limit, after))
        begin = int(after or 0)
        items = [task(id=n) for n in range(begin, min(begin + limit, 2_500))]
        return Page(items, str(begin + limit) if begin + limit < 2_500 else None)

    assert len(list(exports.lines("ndjson", exports.pages(read)))) == 2_500
    assert asked == [(1000, None), (1000, "1000"), (1000, "2000")]
    *tasks, last = exports.lines("ndjson", exports.pages(read, most=1_200))
    assert (len(tasks), json.loads(last)["note"]) == (
        1_200, "these are the newest 1,200; there are more: narrow the filter"
    )  # fmt: skip
    *_, last_cells = read_back(list(exports.lines("csv", exports.pages(read, most=10))))
    assert last_cells == ["# these are the newest 10; there are more: narrow the filter"]
