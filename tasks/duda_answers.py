"""What an answer of Duda's means.

    DudaError
    ├── DudaUnavailable    timeout, reset, 5xx, 408, 409, 423, 425, an answer that is not Duda's: try again later
    ├── DudaRateLimited    429: try again after `retry_after` seconds
    ├── DudaLockedOut      401, 403: try again when the credentials are mended
    └── DudaRefused        any other error of Duda's: repeating it changes nothing

Source: Duda Developer Documentation, "Partner API Reference" ("Error", Introduction).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import httpx

from tasks.pace import PASSING, NotNow, RateLimited, retry_after_seconds

logger = logging.getLogger(__name__)


class DudaError(Exception):
    """Duda did not do what was asked."""


class DudaUnavailable(DudaError):
    """No usable answer; whether the request took effect is unknown. Worth a retry."""


class DudaRateLimited(DudaError, RateLimited):
    service = "Duda"


class DudaLockedOut(DudaError, NotNow):
    """The credentials are wrong, or may not do this: an operator's mistake that every site meets, not this one's.

    If it counted as a failure, a changed password would fail all that is queued within minutes. So all wait, and look
    again after `retry_after` seconds.
    """

    retry_after = 60.0

    def __str__(self) -> str:
        return f"{self.args[0]}; check DUDA_API_USER, DUDA_API_PASSWORD and what this user may do"


class DudaRefused(DudaError):
    """Permanent. Carries the fields of Duda's error object ("Error", Introduction) and the HTTP `status`."""

    def __init__(self, status: int, error_code: str, message: str) -> None:
        super().__init__(status, error_code, message)
        self.status, self.error_code, self.message = status, error_code, message

    def __str__(self) -> str:
        return f"Duda refused with {self.status} {self.error_code}: {self.message}"


def meaning_of(response: httpx.Response) -> Any:
    """The JSON of a success, None if it has no body. Raises DudaError."""
    status = response.status_code
    if response.is_success:
        return _json(response) if response.content else None
    if status == 429:
        raise DudaRateLimited(retry_after_seconds(response.headers.get("Retry-After"), datetime.now(UTC)))
    if status >= 500:
        raise DudaUnavailable(f"{_asked(response)}: Duda answered {status}")
    raise _refusal(response)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise DudaUnavailable(f"{_asked(response)}: {response.status_code} without readable JSON") from error


def _refusal(response: httpx.Response) -> DudaError:
    """What is no error object of Duda's comes from something else on the way, and says nothing about the site."""
    fields, status = _error_object(response), response.status_code
    nothing_said = f"{_asked(response)}: no error object; does DUDA_BASE_URL end in /api?"
    refused = DudaRefused(status, str(fields.get("error_code", "Unknown")), str(fields.get("message", nothing_said)))
    if status in (401, 403):
        locked_out = DudaLockedOut(str(refused))
        logger.error("%s", locked_out)
        return locked_out
    return DudaUnavailable(str(refused)) if status in PASSING or not fields else refused


def _error_object(response: httpx.Response) -> Mapping[str, Any]:
    """Empty if there is none."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) and "error_code" in body else {}


def _asked(response: httpx.Response) -> str:
    return f"{response.request.method} {response.request.url.path}"


def site_name_in(answer: Any) -> str:
    if isinstance(answer, dict) and isinstance(answer.get("site_name"), str):
        return cast(str, answer["site_name"])
    raise DudaUnavailable("Duda's answer has no site_name")


def only_name_in(names: Any, external_id: str) -> str | None:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DudaUnavailable("Duda's answer is no list of site names")
    if len(names) > 1:
        logger.warning("Duda has %d sites with external id %s: using the first by name", len(names), external_id)
    return min(names, default=None)
