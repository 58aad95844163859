"""Planted defects: does a test fail where the thing that it promises is taken away?

`python -m tests.planted` plants each in a copy of the tree and runs its test there; `python -m tests.planted --help`
for some of them. Three groups: one of each kind that a change may break (`kinds`); what a handler may do and what
things are called (`handlers`); and rows of docs/documents.md, those of a hundred drawn by a seed that something was
seen to take away (`--rows` counts them, and names the others). Each was seen to make its test fail.

Drawn are rows with a test: a row that only says why it differs holds nothing that could be taken away. A row with both
a test and a difference is drawn like all others, and what is taken away is what its test asserts. The draw goes by a
hash of the row's own words, so that a row that comes or goes changes the place of no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from tests.documents import PAGE, Row, rows
from tests.planted import builds, crawls, handlers, kinds, reviews, stores, thumbnails
from tests.planted.defect import Defect

SEED, DRAWN = 40, 100

#: Defects by the document whose rows they take away.
DOCUMENTS: Mapping[str, Sequence[Defect]] = {
    "Stale thumbnails": thumbnails.DEFECTS,
    "InstaSite builds": builds.DEFECTS,
    "The Queue Master's review": reviews.DEFECTS,
    "Store worker tasks": stores.DEFECTS,
    "Subreddit crawl jobs": crawls.DEFECTS,
}

DEFECTS: Sequence[Defect] = [*kinds.DEFECTS, *handlers.DEFECTS, *(d for some in DOCUMENTS.values() for d in some)]


def held() -> dict[tuple[str, str], Row]:
    """Return the rows with a test, by their document and what they name."""
    return {(row.document, row.thing): row for row in rows(PAGE.read_text()) if row.tests}


def drawn() -> list[tuple[str, str]]:
    """Return the rows of the draw, by their document and what they name, in its order."""
    return sorted(held(), key=lambda row: hashlib.sha256(f"{SEED} {row[0]} {row[1]}".encode()).hexdigest())[:DRAWN]


def taken_away() -> dict[tuple[str, str], list[Defect]]:
    """Return the rows that defects take away, and those defects."""
    away: dict[tuple[str, str], list[Defect]] = {}
    for document, defects in DOCUMENTS.items():
        for defect in defects:
            for thing in defect.rows:
                away.setdefault((document, thing), []).append(defect)
    return away
