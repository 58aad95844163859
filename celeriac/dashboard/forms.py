"""Values of forms and queries. A form is `application/x-www-form-urlencoded`, up to `CELERIAC_API_BODY_BYTES`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, HTTPException, Path, Request

from celeriac.dashboard import words
from celeriac.errors import BadValue

#: Maximum number of tasks in a form, and of its fields.
MOST_TASKS, MOST_FIELDS = 10_000, 1_000

#: Maximum bytes of the sign-in form, which anybody can send.
MOST_BYTES_UNKNOWN = 4_096

#: The largest bigint of Postgres, and its digits.
MOST, DIGITS = 2**63 - 1, 19

#: The times that a field takes, for an error message.
TIMES = "a time like 30s, 15m, 1h or 2d"

#: An id in an address; and one to which 1 can be added.
Id = Annotated[int, Path(ge=1, le=MOST)]
Place = Annotated[int, Path(ge=1, le=MOST - 1)]


class Form:
    """A form's fields, each once or more often."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        self.fields = fields

    def __getitem__(self, name: str) -> str:
        """Return the last field of this name; empty if there is none."""
        return self.fields.get(name, [""])[-1].strip()

    def name(self, field: str) -> str:
        """Return a name exactly as typed: spaces at its ends may be part of it, or be refused."""
        return self.fields.get(field, [""])[-1]

    def tasks(self) -> list[int]:
        """Return the ids in the fields `task`, each with one id or several with commas. Raises BadValue."""
        ids = [one for many in self.fields.get("task", []) for one in many.split(",") if one]
        if not ids or len(ids) > MOST_TASKS or not all(is_number(one) for one in ids):
            raise BadValue(f"task: tick 1 to {MOST_TASKS:,} tasks")
        return list(dict.fromkeys(map(int, ids)))

    def whole(self, name: str) -> int:
        """Return a whole number. Raises BadValue."""
        text = self[name]
        if not is_number(text.removeprefix("-")):
            raise BadValue(f"{name}={text!r:.100}: give a whole number")
        return int(text)


def as_object(said: str) -> dict[str, Any]:
    """Return the JSON object in a field. Raises BadValue."""
    try:
        value = json.loads(said or "{}")
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{said!r:.50} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadValue(f'{said!r:.50}: give a JSON object, such as {{"store_id": 7}}')
    return value


def number(asked: Mapping[str, str], name: str) -> int | None:
    """Return a list's place, a number in the query; None without one. Raises BadValue."""
    text = asked.get(name)
    if text is None:
        return None
    if not is_number(text):
        raise BadValue(f"{name}={text!r:.50}: give the number of the last one seen")
    return int(text)


def seconds(name: str, text: str | None, example: str = TIMES) -> float | None:
    """Return a time of a query or form in seconds, None without one. Raises BadValue."""
    if not text:
        return None
    if (value := words.seconds(text)) is None:
        raise BadValue(f"{name}={text!r:.50}: give {example}")
    return value


def is_an_id(text: str) -> bool:
    """Return whether a task's address has its id, not its task_id: fewer than 19 digits, without leading zeros."""
    return len(text) < DIGITS and is_number(text) and str(int(text)) == text


def is_number(text: str) -> bool:
    """Return whether these are the digits of a bigint. The length is checked first: Python refuses very many digits."""
    return len(text) <= DIGITS and text.isascii() and text.isdigit() and int(text) <= MOST


class _Body:
    """Reads the body on the event loop; it is parsed in a thread."""

    def __init__(self, most: float | None = None) -> None:
        self.most = most

    async def __call__(self, request: Request) -> bytes:
        most = self.most or request.app.state.site.celeriac.settings.api_body_bytes
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                said = "" if self.most else " (CELERIAC_API_BODY_BYTES)"
                raise HTTPException(413, f"This form may have {most:,.0f} bytes{said}.")
        return bytes(body)


def parsed(body: Annotated[bytes, Depends(_Body())]) -> Form:
    """Parse a form. Raises BadValue."""
    try:
        fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise BadValue(f"form: it may have {MOST_FIELDS:,} fields") from None
    if any("\0" in value for values in fields.values() for value in values):
        raise BadValue("form: it has a NUL, which Postgres does not take")
    return Form(fields)


def _form_unknown(body: Annotated[bytes, Depends(_Body(MOST_BYTES_UNKNOWN))]) -> Form:
    return parsed(body)


#: The form of a user who has signed in; and of one who has not.
Sent = Annotated[Form, Depends(parsed)]
SentUnknown = Annotated[Form, Depends(_form_unknown)]
