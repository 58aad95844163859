"""The API's own document, made once for all tests of a process: it takes a second or two."""

from __future__ import annotations

from functools import cache
from typing import Any

from celeriac.api.server import create
from tasks import app


@cache
def document() -> dict[str, Any]:
    return create(app).openapi()
