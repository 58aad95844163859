"""Errors as RFC 9457 problem documents: the error and what to do, nothing about the server's internals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from celeriac.errors import (
    BadValue,
    CeleriacError,
    EnqueueRefused,
    IdTaken,
    IllegalMove,
    NotReady,
    TokenLimited,
    Unknown,
    UnknownRole,
)
from celeriac.operate import LONGEST
from celeriac.store.failures import is_cut_off, is_gone, is_locked

T = TypeVar("T")

MEDIA_TYPE = "application/problem+json"


#: The end of a problem's `type`, for kinds that share a status.
Kind = Literal["invalid", "illegal-move", "id-taken", "locked", "too-slow", "busy"]

#: The status of each kind, and its meaning.
KINDS: Mapping[Kind, tuple[int, str]] = {
    "invalid": (422, "the request is wrong; `errors` names each field. Sending it again changes nothing"),
    "illegal-move": (409, "the task's state does not allow it now; nothing was written"),
    "id-taken": (409, "another task has this id, with another role or other arguments; nothing was written"),
    "locked": (503, "somebody's open transaction has what this needs; try again after `Retry-After`"),
    "too-slow": (503, "a statement took too long; request less, or try again after `Retry-After`"),
    "busy": (
        503,
        "as many requests are being worked on as may be, and none ended for 10 s; try again after `Retry-After`",
    ),
}


class FieldError(BaseModel):
    """One error in the request."""

    where: str = Field(examples=["body"], description="body, query, path or header")
    field: str = Field(examples=["priority"])
    message: str = Field(examples=["Input should be a valid integer"])


class ProblemDocument(BaseModel):
    """A problem document, as in RFC 9457."""

    type: str = Field(
        examples=["about:blank"], description="urn:celeriac:problem:… where the status alone does not tell the kind"
    )
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no task 7"])
    instance: str | None = Field(default=None, examples=["/api/tasks/7"])
    errors: list[FieldError] | None = None


class Problem(HTTPException):
    """An error to raise in a handler; `kind` names it if the status alone does not. `more`: further members."""

    def __init__(
        self, status: int, detail: str, *, kind: Kind | None = None, errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None, more: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(status, detail, dict(headers or {}))
        self.kind, self.errors, self.more = kind, list(errors), dict(more or {})

    def document(self, path: str | None) -> ProblemDocument:
        return ProblemDocument(
            type=f"urn:celeriac:problem:{self.kind}" if self.kind else "about:blank",
            title=HTTPStatus(self.status_code).phrase,
            status=self.status_code,
            detail=self.detail,
            instance=path,
            errors=self.errors or None,
        )

    def response(self, path: str | None) -> JSONResponse:
        content = self.document(path).model_dump(exclude_none=True) | self.more
        return JSONResponse(content, self.status_code, headers=self.headers, media_type=MEDIA_TYPE)


def from_exception(error: Exception, where: str = "body") -> Problem:
    """Return the problem that any caller may see; details are for the log only. `where`: the input's place."""
    match error:
        case Problem():
            return error
        case HTTPException():
            return Problem(error.status_code, error.detail, headers=error.headers)
        case RequestValidationError():
            return from_validation(error.errors())
        case CeleriacError():
            return from_engine(error, where)
        case DBAPIError() | NoConnection():
            return from_database(error)
    return unexpected()


def not_found(what: str) -> Problem:
    return Problem(404, f"there is no {what}")


def first_of(rows: Sequence[T], what: str) -> T:
    """Return the first row. Raises Problem 404 if there is none."""
    if not rows:
        raise not_found(what)
    return rows[0]


def invalid(field: str, message: str, where: str = "body") -> Problem:
    """Return a 422 for an error that only the engine could find."""
    return Problem(422, message, kind="invalid", errors=[FieldError(where=where, field=field, message=message)])


def from_validation(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """Return a 422 with pydantic's errors, without the values, which may be secret."""
    field_errors = [
        FieldError(where=str(e["loc"][0]), field=".".join(map(str, e["loc"][1:])), message=e["msg"]) for e in errors
    ]
    named = ", ".join(dict.fromkeys(f.field or f.where for f in field_errors))
    return Problem(422, f"what was sent does not fit: {named}", kind="invalid", errors=field_errors)


#: Where a refusal's message names an option, and the body's name of it.
_OPTION = re.compile(r": (?:(\w+)=|its (queue)s? )")
_CALLED = {"at": "scheduled_for", "priority": "priority", "task_id": "task_id", "account": "account"} | {
    name: name for name in ("lock_key", "unique_key", "max_retries", "timeout", "delay", "expires_at", "queue")
}


def from_refusal(error: EnqueueRefused, within: str = "") -> Problem:
    """Return a 422 for the field that the refusal names: an option, the role, or else the arguments. `within`: the
    place of the call in the body.
    """
    named = _OPTION.search(str(error))
    option = _CALLED.get(named[1] or named[2], "kwargs") if named else "kwargs"
    field = "role" if isinstance(error, UnknownRole) else option
    return invalid(f"{within}.{field}" if within else field, str(error))


def from_engine(error: CeleriacError, where: str) -> Problem:
    """Return the problem for an error of the engine, whose text is meant for the caller."""
    if isinstance(error, IllegalMove):
        return Problem(409, str(error), kind="illegal-move")
    if isinstance(error, IdTaken):
        return Problem(409, str(error), kind="id-taken")
    if isinstance(error, Unknown):
        return Problem(404, str(error))
    if isinstance(error, TokenLimited):
        return Problem(403, str(error))
    if isinstance(error, NotReady) and error.because:
        return from_database(error.because)
    if isinstance(error, BadValue):
        return invalid(str(error).partition("=")[0], str(error), where)
    if isinstance(error, EnqueueRefused):
        return from_refusal(error)
    return Problem(500, "the engine could not do this; its log says why")


def from_database(error: Exception) -> Problem:
    """Return the problem for an error of the database, without the failed statement."""
    if is_cut_off(error):
        detail = f"this took longer than the {LONGEST:g} s a statement may take; ask for less, or try again later"
        return Problem(503, detail, kind="too-slow", headers={"Retry-After": "5"})
    if isinstance(error, NoConnection) or is_gone(error):
        return Problem(503, "Postgres does not answer; try again soon", headers={"Retry-After": "5"})
    if is_locked(error):
        detail = "somebody's open transaction has what this needs; try again soon"
        return Problem(503, detail, kind="locked", headers={"Retry-After": "1"})
    if isinstance(error, DataError):
        return Problem(422, "a value is out of the range that can be stored", kind="invalid")
    return unexpected()


def unexpected() -> Problem:
    return Problem(500, "something went wrong here; the server's log says what")
