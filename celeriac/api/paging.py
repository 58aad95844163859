"""Lists: each takes `limit` and `after`, and says in `next` where it goes on.

A place is what the last item told is known by, its id, its name or its rank, and never a number of items: what is
inserted meanwhile neither repeats nor hides anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from celeriac.errors import BadValue
from celeriac.insights import MOST_ROWS

T = TypeVar("T")

#: Of a rank, which may have a key in it, escaped.
LONGEST_PLACE = 8_000

Place = Annotated[str, StringConstraints(max_length=LONGEST_PLACE, pattern=r"^[^\x00]*$")]


class Paged(BaseModel):
    """Only a page without `next` is the last: one may be short, or empty, before that."""

    next: str | None = Field(description="`after` of the following page; null: this is the last", examples=["1042"])


class PageQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=MOST_ROWS, description="how many at most")] = 100
    after: Annotated[
        Place | None, Field(description="the `next` of the page before, asked for with the same filter")
    ] = None

    @property
    def after_id(self) -> int | None:
        """For lists by id. Raises BadValue."""
        if self.after is None:
            return None
        if not (len(self.after) < 20 and self.after.isascii() and self.after.isdigit() and int(self.after) < 2**63):
            raise self._misplaced()
        return int(self.after)

    def read(self, some: Callable[[int], Sequence[T]], place: Callable[[T], object]) -> tuple[list[T], str | None]:
        """A page and its `next`. `some(n)` reads the next n after the place; one more than is told is read."""
        return self._cut(some(self.limit + 1), lambda last: str(place(last)))

    def of(self, all_of_them: Sequence[T], rank: Callable[[T], tuple[Any, ...]]) -> tuple[list[T], str | None]:
        """A page of what is read whole, in the order of its ranks, of which no two are the same. Raises BadValue."""
        start = self._start()
        try:
            rest = sorted((one for one in all_of_them if start is None or rank(one) > start), key=rank)
        except TypeError:
            raise self._misplaced() from None
        return self._cut(rest, lambda last: json.dumps(rank(last), ensure_ascii=False))

    def _cut(self, found: Sequence[T], place: Callable[[T], str]) -> tuple[list[T], str | None]:
        told = list(found[: self.limit])
        return told, place(told[-1]) if len(found) > self.limit else None

    def _start(self) -> tuple[Any, ...] | None:
        if self.after is None:
            return None
        try:
            start = json.loads(self.after)
        except (ValueError, RecursionError):
            start = None
        if not isinstance(start, list):
            raise self._misplaced()
        return tuple(start)

    def _misplaced(self) -> BadValue:
        return BadValue(f"after={self.after!r:.100}: give the `next` of the page before, with the same filter")


PageOf = Annotated[PageQuery, Query()]
