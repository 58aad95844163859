"""Lists as files: what is in them is read back as it was, and no cell is a formula."""

from __future__ import annotations

import csv
import io
import json
import re
import time
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
        assert told.replace("'", "") == error.replace("'", "")
        assert not formulas(told)


#: Where programs may separate cells, whatever the file means, and what they may take away before a cell.
SEPARATORS, BLANKS = re.compile("[;|\t\r\n]"), ' \t\r\n"\xa0\u3000\ufeff\u200b'


def formulas(cell: str) -> list[str]:
    """What a spreadsheet would compute, whichever separator it takes."""
    parts = (part.lstrip(BLANKS) for part in (cell, *SEPARATORS.split(cell)))
    return [part for part in parts if part.startswith(tuple("=+-@\uff1d\uff0b\uff0d\uff20"))]


signs = st.text(st.sampled_from(' =+-@;|\t\r\n",x\uff1d\uff0b\uff0d\uff20\xa0\ufeff'), max_size=12)


@given(signs, signs)
def test_no_part_of_a_text_is_a_formula_whichever_separator_a_program_takes(text: str, other: str) -> None:
    for value in (text, {"a": text, other: [other]}):
        told = exports.cell(value)
        assert not formulas(told)
        assert told.replace("'", "") == (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    line = exports.line("csv", {"a": text, "b": other, "c": 7}, ("a", "b", "c"))
    assert read_back([line]) == [[exports.cell(text), exports.cell(other), "7"]]
    assert (line[0], line.endswith(',"7"\r\n')) == ('"', True), "each cell is quoted"


def test_what_begins_like_a_formula_gets_an_apostrophe_and_a_number_stays_one() -> None:
    for text in ("=1+1", "+1", "-1", "@x", "\uff1d1"):
        assert exports.cell(text) == f"'{text}"
    assert exports.cell("\t=1") == "'\t'=1"
    assert exports.cell("a; =1|b\t+2") == "a; '=1|b\t'+2"
    told = [exports.cell(value) for value in (-5, 1.5, None, "a=1", "a - b, -c", {"a": 1})]
    assert told == ["-5", "1.5", "", "a=1", "a - b, -c", '{"a": 1}']


def test_a_text_of_blanks_takes_no_longer_than_another() -> None:
    took = {}
    for kind, one in (("plain", "x"), ("blanks", "\t"), ("separators", "; "), ("signs", "\t=")):
        began = time.process_time()
        exports.cell(one * 200_000)
        took[kind] = time.process_time() - began
    assert max(took.values()) < 2.0, took


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
