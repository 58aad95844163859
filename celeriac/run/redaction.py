"""Hide a run's secrets: the arguments its role calls sensitive, also in Celery's log lines."""

from __future__ import annotations

import logging

from celeriac.roles.declare import Roles
from celeriac.roles.role import Role
from celeriac.run import run as running
from celeriac.run.run import Run
from celeriac.settle.outcome import masked
from celeriac.store.encoding import legible
from celeriac.store.redact import HIDDEN, without
from celeriac.store.sensitive import Sensitive

#: The logger in which Celery's tracer writes how runs ended, with arguments, errors and results.
TRACER = "celery.app.trace"

#: The logger for warnings: Celery warns of an error outside the handler, for example in a hook.
WARNINGS = "py.warnings"


def of_role(roles: Roles, role: Role) -> Sensitive | None:
    """Return the arguments that this role calls sensitive."""
    return of_name(roles, role.name) if role.sensitive else None


def of_name(roles: Roles, role: str) -> Sensitive | None:
    """Return the arguments that the role of this name calls sensitive; None if it is not declared here."""
    declared = roles.get(role)
    return None if declared is None else declared.sensitive


def reprs(run: Run) -> dict[str, str]:
    """Return the run's arguments as Celery shows them, masked."""
    if run.secret is None:
        return {}
    if masked(run.task.headers):
        return {"argsrepr": HIDDEN, "kwargsrepr": HIDDEN}
    args, kwargs = run.secret.call(run.task.args, run.task.kwargs)
    return {"argsrepr": repr(legible(args)), "kwargsrepr": repr(legible(kwargs))}


def veil(run: Run, error: BaseException) -> None:
    """Mask a run's secrets in an error that ends its process, because its ticket, its rows and its parent quote that
    error.
    """
    if run.secret is None:
        return
    error.args = tuple(
        without(run.secrets, one if isinstance(one, str | int | float) else str(one)) for one in error.args
    )
    error.__cause__ = error.__context__ = None
    if isinstance(error, SystemExit) and not isinstance(error.code, int):
        error.code = str(error)


class Redacting(logging.Filter):
    """A log filter for runs of roles with secrets: they are masked in the message, and a traceback becomes text."""

    def filter(self, record: logging.LogRecord) -> bool:
        run = running.current()
        if run is None or run.secret is None:
            return True
        message = run.without_secrets(record.getMessage())
        if record.exc_info:
            # As the row has it, with a line's end: what is redacted once is not searched again.
            traceback = logging.Formatter().formatException(record.exc_info) + "\n"
            record.exc_text = run.without_secrets(traceback).removesuffix("\n")
            record.exc_info = None
        record.msg, record.args, record.data = message, (), {}
        return True


for _name in (TRACER, WARNINGS):
    logging.getLogger(_name).addFilter(Redacting())
