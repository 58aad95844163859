"""docs/documents.md: what the five documents name is where its rows say, and held by the tests they name."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import documents
from tests.documents import PAGE, Row

ROWS = list(documents.rows(PAGE.read_text()))

#: Of each document. Rows are added; one that goes takes its thing with it.
LEAST = {
    "Stale thumbnails": 71,
    "InstaSite builds": 88,
    "The Queue Master's review": 45,
    "Store worker tasks": 200,
    "Subreddit crawl jobs": 141,
}

GOOD = Row("d", "a thing", "name", "`tasks/stores.py::run_now`", "`tests/pure/test_documents.py::test_every_row_holds`")


def test_every_row_holds() -> None:
    assert {f"{row.document}: {row.thing}": wrong for row in ROWS if (wrong := documents.wrong_with(row))} == {}


def test_no_thing_has_gone() -> None:
    counts = Counter(row.document for row in ROWS)
    assert {document: n for document, n in LEAST.items() if counts[document] < n} == {}
    assert set(counts) == set(LEAST)
    assert sum(LEAST.values()) >= 393


def test_no_thing_has_two_rows() -> None:
    assert [named for named, n in Counter((row.document, row.thing) for row in ROWS).items() if n > 1] == []


def test_a_row_that_holds_has_nothing_wrong() -> None:
    assert documents.wrong_with(GOOD) == []
    assert documents.wrong_with(GOOD._replace(here="", held="differs, because nobody wants it")) == []


@pytest.mark.parametrize(
    "change",
    [
        {"here": "`tasks/no_such_file.py`"}, {"here": "`tasks/stores.py::no_such_function`"}, {"here": ""},
        {"here": "`GET /api/no-such-path`"}, {"here": "`/admin/no-such-page`"},
        {"here": "`GET /api/tasks`"}, {"here": "`GET /api/tasks` (token: operate)"}, {"here": "`NO_SUCH_VARIABLE`"},
        {"here": "`no_such_table`"}, {"here": "`worker_tasks.no_such_column`"}, {"kind": "thingummy"}, {"thing": ""},
        {"held": ""}, {"held": "differs, because "}, {"held": "`tests/pure/test_documents.py::test_no_such`"},
        {"held": "`tests/pure/no_such_file.py::test_every_row_holds`"}, {"held": "being built"},
        {"held": f"{GOOD.held}, surely"},
    ],
)  # fmt: skip
def test_a_row_that_does_not_hold_is_told(change: dict[str, str]) -> None:
    assert documents.wrong_with(GOOD._replace(**change))
