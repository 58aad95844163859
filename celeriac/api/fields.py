"""What fields may hold: what Postgres can store and index, told before it has to refuse."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, TypeVar

from fastapi import Path, Query
from pydantic import AfterValidator, Field, Strict, StringConstraints

from celeriac.roles.bounds import ANY_PRIORITY, LONGEST_KEY, LONGEST_NAME

T = TypeVar("T")

_NO_NUL = r"^[^\x00]*$"


def _is_text(given: str) -> str:
    if len(given.encode(errors="replace")) > LONGEST_KEY or any("\ud800" <= c <= "\udfff" for c in given):
        raise ValueError(f"give at most {LONGEST_KEY} bytes of text")
    return given


def _with_zone(given: datetime) -> datetime:
    return given if given.tzinfo else given.replace(tzinfo=UTC)


#: Account, lock and unique keys, reasons.
Text = Annotated[str, StringConstraints(max_length=LONGEST_KEY, pattern=_NO_NUL), AfterValidator(_is_text)]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=LONGEST_NAME, pattern=_NO_NUL), AfterValidator(_is_text)
]

#: What names no zone is UTC.
Moment = Annotated[datetime, AfterValidator(_with_zone)]

#: Of bodies: `false` is no number, nor is "7"; and 1 is not true.
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]

Id = Annotated[int, Field(ge=1, le=2**63 - 1)]
Ids = Annotated[list[Annotated[Whole, Field(ge=1, le=2**63 - 1)]], Field(min_length=1, max_length=1000)]
Priority = Annotated[Whole, Field(ge=ANY_PRIORITY[0], le=ANY_PRIORITY[1])]

#: Of a task, wherever one is named.
TaskInPath = Annotated[Name, Path(description="its id, or its task_id", examples=["7"])]

IdInPath = Annotated[int, Path(ge=1, le=2**63 - 1)]

#: Of the seeds' lists, beside `limit`; bounded.
Offset = Annotated[
    int, Query(ge=0, le=10_000, description="how many to skip, without `after`; for longer ways use that")
]
