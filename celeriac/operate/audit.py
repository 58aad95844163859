"""The audit trail: who changed what, from what to what. Written in the change's own transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from psycopg2.errors import InsufficientPrivilege
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from celeriac import logged
from celeriac.errors import NotAllowed

logger = logging.getLogger(__name__)

#: Most targets that a log line names.
NAMED = 20
#: The surface through which an operator acts; each surface sets it. The default is the application's own code.
VIA: ContextVar[str] = ContextVar("celeriac_via", default="application")

NOT_ALLOWED = (
    "this login to Postgres may not write the audit trail, so nothing was changed: do it by the HTTP API, or by the "
    "command line with a login of the admins"
)

WRITE = text("""
INSERT INTO celeriac.audit (by, action, kind, target, before, after, why, via)
SELECT :by, :action, :kind, target, before, after, :why, :via
FROM jsonb_to_recordset(CAST(:changes AS jsonb)) AS c (target text, before jsonb, after jsonb)
""")

# A routine, as the only way for a worker's login to write to the trail.
NOTE = text("SELECT celeriac.note_remote_control(:command, :kind, CAST(:changes AS jsonb), :by)")


@dataclass(frozen=True, slots=True)
class Change:
    """A change. `target` names what was changed: a task's row id, a role, an account. None: there is no such thing."""

    target: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(slots=True)
class AuditedTogether:
    """Tasks that share one row of the trail: it has the filter that selects them instead of each one's former state.

    `filter`: that filter; `tasks`: how many they are, None if not counted. `is_written`: the row exists. The target
    names the conditions alone: their values may be errors or arguments, which not all readers may see.
    """

    filter: Mapping[str, Any]
    tasks: int | None = None
    is_written: bool = False

    @property
    def change(self) -> Change:
        counted = {} if self.tasks is None else {"tasks": self.tasks}
        names = ", ".join(_conditions(self.filter))
        return Change(names[:LONGEST_TARGET], None, {"filter": dict(self.filter)} | counted)


def _conditions(of: Mapping[str, Any]) -> Iterator[str]:
    for name, value in of.items():
        arguments = value if name == "arguments" and isinstance(value, Mapping) else {}
        yield from (f"arg.{argument}" for argument in arguments) if arguments else (name,)


#: Most characters of a target that names conditions.
LONGEST_TARGET = 200

_MANY: ContextVar[AuditedTogether | None] = ContextVar(
    "celeriac: tasks that share a row of the audit trail", default=None
)


@contextmanager
def as_one(many: AuditedTogether) -> Iterator[None]:
    """Write one audit row for all changes to tasks in this context, in one transaction, unless already written."""
    token = _MANY.set(many)
    try:
        yield
    finally:
        _MANY.reset(token)


def write(
    connection: Connection, action: str, kind: str, changes: Iterable[Change], *, by: str, why: str | None = None
) -> None:
    """Write an audit row for each change. Raises NotAllowed. `kind` is what was changed: task, role, account, schedule,
    token, worker, bulk or view; `tasks` if many share a row.
    """
    many = _MANY.get() if kind == "task" else None
    if many is not None:
        kind, changes = "tasks", [many.change] if not many.is_written and list(changes) else []
    rows = [{"target": c.target, "before": c.before, "after": c.after} for c in changes]
    if rows:
        parameters = {
            "by": by,
            "action": action,
            "kind": kind,
            "changes": json.dumps(rows),
            "why": why or None,
            "via": VIA.get(),
        }
        try:
            connection.execute(WRITE, parameters)
        except ProgrammingError as error:
            if isinstance(error.orig, InsufficientPrivilege):
                raise NotAllowed(NOT_ALLOWED) from None
            raise
        targets = [str(row["target"]) for row in rows[:NAMED]]
        names = ", ".join(targets) + (", …" if len(rows) > NAMED else "")
        fields = {"by": by, "action": action, "kind": kind, "targets": targets, "n": len(rows), "why": why or None}
        message = f"{by}: {action} {kind} {names}"
        logged.after_commit(connection, logger, logging.INFO, message, event="audit", **fields)


def note_remote_control(
    connection: Connection, command: str, kind: str, changes: Iterable[Change], *, by: str
) -> None:  # fmt: skip
    """Audit each change by remote control, which all who write to Redis can send. `by`: the worker that received it."""
    rows = [{"target": c.target, "after": c.after} for c in changes]
    connection.execute(NOTE, {"command": command, "kind": kind, "changes": json.dumps(rows), "by": by})
