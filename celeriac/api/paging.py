"""Lists: each takes `limit` and `after`, and returns in `next` the place where the next page begins.

A place is the id, name or rank of a page's last item. It does not count items, so rows inserted meanwhile neither
repeat nor hide any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, StringConstraints
from pydantic_core import CoreSchema, core_schema

from celeriac.api.fields import Name
from celeriac.insights import MOST_ROWS

T = TypeVar("T")

#: The maximum length of a place, which may contain an escaped key.
LONGEST_PLACE = 8_000

Place = Annotated[str, StringConstraints(max_length=LONGEST_PLACE, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class PlaceForm:
    """The pattern of a list's places: shown in the OpenAPI document, and checked before anything is read."""

    pattern: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._fitting, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(schema) | {"pattern": f"^({self.pattern})$"}

    def _fitting(self, place: str) -> str:
        if re.fullmatch(self.pattern, place) is None:
            raise ValueError("give the `next` of the page before, with the same filter")
        return place


def ranks(*parts: str) -> PlaceForm:
    """Return the form of places that `PageQuery.of` writes: a JSON list of these parts."""
    return PlaceForm(r"\[" + ", ".join(parts) + r"\]")


#: An id below 9 * 10^18.
_ID = "[0-9]{1,18}|[1-8][0-9]{18}"

#: Parts of ranks as `json.dumps` writes them. It escapes only control characters; no text in Postgres has a NUL or half
#: of a surrogate pair.
NUMBER = r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,30})?(e[-+][0-9]{1,3})?"
TEXT = r'"([^"\\\x00-\x1f]|\\["\\bfnrt]|\\u00(0[1-9a-f]|1[0-9a-f]))*"'

#: The instant in a place of a list of finished tasks, before an id.
_INSTANT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"


def as_instant(at: datetime) -> str:
    """Format an instant for a place."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


AFTER = Field(description="the `next` of the page before, with the same filter")


class Paged(BaseModel):
    """A page of a list. Only a page without `next` is the last; others may be short or empty as well."""

    next: str | None = Field(description="`after` of the following page; null: this is the last", examples=["1042"])


class PageQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=MOST_ROWS, description="how many at most")] = 100
    after: Annotated[Place | None, AFTER] = None

    def read(self, some: Callable[[int], Sequence[T]], place: Callable[[T], object]) -> tuple[list[T], str | None]:
        """Return a page and its `next`. `some(n)` reads the next n items; one more than a page is read."""
        return self._cut(some(self.limit + 1), lambda last: str(place(last)))

    def of(self, all_of_them: Sequence[T], rank: Callable[[T], tuple[Any, ...]]) -> tuple[list[T], str | None]:
        """Return a page of a list that is read as a whole, in the order of its unique ranks, which give `after` its
        form.
        """
        start = None if self.after is None else tuple(json.loads(self.after))
        rest = sorted((one for one in all_of_them if start is None or rank(one) > start), key=rank)
        return self._cut(rest, lambda last: json.dumps(rank(last), ensure_ascii=False))

    def _cut(self, rows: Sequence[T], place: Callable[[T], str]) -> tuple[list[T], str | None]:
        page = list(rows[: self.limit])
        return page, place(page[-1]) if len(rows) > self.limit else None


class IdQuery(PageQuery):
    """A page of a list by id."""

    after: Annotated[Annotated[Place, PlaceForm(_ID)] | None, AFTER] = None

    @property
    def after_id(self) -> int | None:
        return None if self.after is None else int(self.after)


class TasksQuery(PageQuery):
    after: Annotated[Annotated[Place, PlaceForm(f"({_INSTANT} )?({_ID})")] | None, AFTER] = None


class EndedQuery(PageQuery):
    """A page of a list of finished tasks."""

    after: Annotated[Annotated[Place, PlaceForm(f"{_INSTANT} ({_ID})")] | None, AFTER] = None


class InstantsQuery(PageQuery):
    """A page of a list by two instants."""

    after: Annotated[Annotated[Place, PlaceForm(f"{_INSTANT} {_INSTANT}")] | None, AFTER] = None


class NameQuery(PageQuery):
    """A page of a list by name."""

    after: Annotated[Annotated[Place, ranks(TEXT)] | None, AFTER] = None


PageOf = Annotated[PageQuery, Query()]
PageOfIds = Annotated[IdQuery, Query()]
PageOfEnded = Annotated[EndedQuery, Query()]
PageOfInstants = Annotated[InstantsQuery, Query()]
PageOfNames = Annotated[NameQuery, Query()]


class RoleQuery(PageQuery):
    role: Name | None = None
