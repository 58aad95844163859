"""What a form sent: `application/x-www-form-urlencoded`, up to `CELERIAC_API_BODY_BYTES`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, Request

from celeriac.errors import BadValue

#: Tasks one form may name.
MOST_TASKS = 10_000


class Form:
    """Its fields, each once or more often."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        self.fields = fields

    def __getitem__(self, name: str) -> str:
        """The last one of this name; empty if there is none."""
        return self.fields.get(name, [""])[-1].strip()

    def tasks(self) -> list[int]:
        """The ids in `task`, each field one or many with commas. Raises BadValue."""
        given = [one for many in self.fields.get("task", []) for one in many.split(",") if one]
        if not given or len(given) > MOST_TASKS or not all(one.isascii() and one.isdigit() for one in given):
            raise BadValue(f"task: tick 1 to {MOST_TASKS:,} tasks")
        return list(dict.fromkeys(map(int, given)))

    def whole(self, name: str) -> int:
        """Raises BadValue."""
        try:
            return int(self[name])
        except ValueError:
            raise BadValue(f"{name}={self[name]!r:.100}: give a whole number") from None


async def _form(request: Request) -> Form:
    """Raises BadValue."""
    most = request.app.state.site.celeriac.settings.api_body_bytes
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise BadValue(f"form: it may have {most:,.0f} bytes (CELERIAC_API_BODY_BYTES)")
    return Form(parse_qs(body.decode(errors="replace"), keep_blank_values=True))


Sent = Annotated[Form, Depends(_form)]
