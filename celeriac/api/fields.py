"""Types of fields. They refuse a value that Postgres could not store or index."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query
from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, Strict, StringConstraints
from pydantic_core import CoreSchema, core_schema

from celeriac.paths import RestOfPath as RestOfPath
from celeriac.roles.bounds import ANY_PRIORITY, LONGEST_KEY, LONGEST_NAME, NAME, SOME_TEXT, TEXT, Rule

T = TypeVar("T")


def _sized(most: int, least: int | None = None) -> StringConstraints:
    """Return the bounds of a text's length; no text has a NUL."""
    return StringConstraints(min_length=least, max_length=most, pattern=r"^[^\x00]*$")


def _fitting(rule: Rule, prefix: str = "") -> BeforeValidator:
    """Return the check that a text, without the prefix, fits the engine's rule."""

    def check(text: Any) -> Any:
        if isinstance(text, str) and not rule.fits(text.removeprefix(prefix)):
            raise ValueError(f"give {rule.right}")
        return text

    return BeforeValidator(check)


def _only_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("give a text such as 2026-11-21 or 2026-11-21T12:00:00Z")
    return value


def _without_fraction(value: Any) -> Any:
    """Return 29.0 as an integer, because JSON has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_utc(moment: datetime) -> datetime:
    """Return the moment in UTC, because Postgres accepts only offsets below 16 hours."""
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("give an instant within the years 1 to 9999") from None


#: A text: account, lock and unique keys, reasons.
Text = Annotated[str, _sized(LONGEST_KEY), _fitting(TEXT)]
Name = Annotated[str, _sized(LONGEST_NAME, 1), _fitting(TEXT)]

#: A role's name, or that of a lane (the role, a comma and a queue), in a path.
RoleInPath = Annotated[str, _sized(2 * LONGEST_NAME + 1, 1), _fitting(TEXT), Path()]

#: The name of something that the request creates.
Called = Annotated[str, _sized(LONGEST_NAME, 1), _fitting(NAME)]

#: A task's id or task_id, with or without `id=` or `task_id=` before it.
TaskName = Annotated[str, _sized(2 * LONGEST_KEY, 1), _fitting(TEXT, "task_id=")]

#: Marks a date or time in a body, which has to be a text: pydantic would accept a number of seconds.
AS_TEXT = BeforeValidator(_only_text)

#: An instant; without a zone it is UTC.
Moment = Annotated[datetime, AS_TEXT, AfterValidator(_in_utc)]

#: The greatest id: below 2^63, and exact as a float, because the OpenAPI document's bounds are floats.
LAST_ID = 9 * 10**18


@dataclass(frozen=True, slots=True)
class Whole:
    """Bounds of an `int` in a body, from `least` to `most`. `false` and "7" are no integers."""

    least: int
    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        bounded = core_schema.int_schema(strict=True, ge=self.least, le=self.most)
        return core_schema.no_info_before_validator_function(_without_fraction, bounded)


#: Types for bodies: `false` and "7" are no numbers, and 1 is not true.
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]


class EitherId:
    """A task's id, as a number or a text, or its task_id."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        either = core_schema.union_schema(
            [core_schema.int_schema(strict=True, ge=1, le=LAST_ID), handler.generate_schema(TaskName)],
            custom_error_type="either_id", custom_error_message=f"give a task's id or its task_id, {SOME_TEXT.right}",
        )  # fmt: skip
        return core_schema.no_info_before_validator_function(_without_fraction, either)


Ids = Annotated[
    list[Annotated[int | str, EitherId()]],
    Field(min_length=1, max_length=1000, description="for each task its id or its task_id"),
]
Priority = Annotated[int, Whole(*ANY_PRIORITY)]

#: A task in a path.
TaskInPath = Annotated[
    TaskName,
    Path(description="its id, or its task_id; id=… and task_id=… say which of them a number is", examples=["7"]),
]


def _account(text: str) -> str:
    if not text:
        raise ValueError("give an account; account= are the tasks without one")
    return text.removeprefix("account=")


#: An account in a path.
AccountInPath = Annotated[
    Text,
    BeforeValidator(_account),
    Path(
        description="may have slashes; or account= and any name: clients remove . and .. from a path",
        examples=["anna"], json_schema_extra={"minLength": 1},
    ),
]  # fmt: skip

IdInPath = Annotated[int, Path(ge=1, le=LAST_ID)]

#: A bounded number of items to skip; `after` is the way to later pages.
Offset = Annotated[
    int, Query(ge=0, le=10_000, description="how many to skip, without `after`; to get further, use that")
]
