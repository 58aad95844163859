"""What of a run nobody is shown: which arguments its role calls sensitive, and Celery's lines without them."""

from __future__ import annotations

import logging

from celeriac.roles.declare import Roles
from celeriac.roles.role import Role
from celeriac.run import run as running
from celeriac.run.run import Run
from celeriac.store.encoding import legible
from celeriac.store.redact import without
from celeriac.store.sensitive import Sensitive

#: Where Celery's tracer logs how runs ended, with arguments, errors and results.
TRACER = "celery.app.trace"

#: Where a worker logs warnings: Celery warns of an error outside the handler, in a hook of its task's say.
WARNINGS = "py.warnings"


def of_role(roles: Roles, role: Role) -> Sensitive | None:
    """What this role calls sensitive."""
    return of_name(roles, role.name) if role.sensitive else None


def of_name(roles: Roles, role: str) -> Sensitive | None:
    """The same; None also of a role that is not declared here."""
    declared = roles.get(role)
    return None if declared is None else declared.sensitive


def reprs(run: Run) -> dict[str, str]:
    """What Celery shows of its arguments."""
    if run.secret is None:
        return {}
    args, kwargs = run.secret.call(run.task.args, run.task.kwargs)
    return {"argsrepr": repr(legible(args)), "kwargsrepr": repr(legible(kwargs))}


def veil(run: Run, error: BaseException) -> None:
    """Takes a run's secrets out of an error that ends its whole process: its ticket, rows and parent quote it."""
    if run.secret is None:
        return
    error.args = tuple(
        without(run.secrets, one if isinstance(one, str | int | float) else str(one)) for one in error.args
    )
    error.__cause__ = error.__context__ = None
    if isinstance(error, SystemExit) and not isinstance(error.code, int):
        error.code = str(error)


class Redacting(logging.Filter):
    """Of a run under way, whose role has secrets: a line keeps its words, an error its traceback as a text."""

    def filter(self, record: logging.LogRecord) -> bool:
        run = running.current()
        if run is None or run.secret is None:
            return True
        message = run.without_secrets(record.getMessage())
        if record.exc_info:
            record.exc_text = run.without_secrets(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None
        record.msg, record.args, record.data = message, (), {}
        return True


for _name in (TRACER, WARNINGS):
    logging.getLogger(_name).addFilter(Redacting())
