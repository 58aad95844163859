"""Check after check: what `celeriac doctor`, the page System and `/api/doctor` tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from psycopg2.errors import InsufficientPrivilege
from psycopg2.extensions import QueryCanceledError
from sqlalchemy.exc import SQLAlchemyError

from celeriac.app import Celeriac
from celeriac.doctor import machinery, work
from celeriac.doctor.findings import Seen, Trouble, error_text
from celeriac.errors import ConfigurationError

#: The four questions of the crawl jobs' document, and what all of them rest on.
MACHINERY = "what all rests on"
PROCESSING = "tasks are not processed"
RETRYING = "failed tasks are not retried"
SCHEDULED = "schedules do not run"
PRIORITY = "priorities do not count"


@dataclass(frozen=True, slots=True)
class SystemCheck:
    """`needs`: the checks without which it cannot be asked. `about`: the question it belongs to."""

    name: str
    look: Callable[[Celeriac], Seen]
    needs: frozenset[str]
    about: str


_POSTGRES = frozenset({"postgres"})
_TABLES = _POSTGRES | {"revision"}

CHECKS = (
    SystemCheck("postgres", machinery.postgres, frozenset(), MACHINERY),
    SystemCheck("redis", machinery.redis, frozenset(), MACHINERY),
    SystemCheck("revision", machinery.revision, _POSTGRES, MACHINERY),
    SystemCheck("schema", machinery.schema, _TABLES, MACHINERY),
    SystemCheck("old transactions", machinery.transactions, _TABLES, MACHINERY),
    SystemCheck("locks", machinery.locks, _TABLES, MACHINERY),
    SystemCheck("dead rows", machinery.dead_rows, _POSTGRES, MACHINERY),
    SystemCheck("connections", machinery.connections, _POSTGRES, MACHINERY),
    SystemCheck("clock", machinery.clock, _POSTGRES, MACHINERY),
    SystemCheck("workers", machinery.workers, _TABLES, PROCESSING),
    SystemCheck("roles", machinery.roles, _TABLES, PROCESSING),
    SystemCheck("beat", machinery.beat, _TABLES, SCHEDULED),
    SystemCheck("tickets", machinery.tickets, _TABLES, PROCESSING),
    SystemCheck("pauses", work.pauses, _TABLES, PROCESSING),
    SystemCheck("outcomes", work.outcomes, _TABLES, PROCESSING),
    SystemCheck("retries", work.retries, _TABLES, RETRYING),
    SystemCheck("schedules", work.schedules, _TABLES, SCHEDULED),
    SystemCheck("priorities", work.priorities, _TABLES, PRIORITY),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the answer."""

    check: str
    ok: bool
    says: str
    cure: str | None
    about: str


def examine(app: Celeriac) -> Iterator[Finding]:
    """Check after check, but those that need what is not there."""
    failed: set[str] = set()
    for check in CHECKS:
        if failed & check.needs:
            continue
        seen = _seen(app, check)
        failed |= {check.name} if seen.troubles else set()
        for trouble in seen.troubles:
            yield Finding(check.name, False, trouble.text, trouble.cure, check.about)
        if not seen.troubles:
            yield Finding(check.name, True, seen.text, None, check.about)


def _seen(app: Celeriac, check: SystemCheck) -> Seen:
    try:
        return check.look(app)
    except ConfigurationError as error:
        return Seen("", [Trouble(str(error), "mend the setting; `celeriac check` tells when it is right")])
    except SQLAlchemyError as error:
        if isinstance(getattr(error, "orig", None), InsufficientPrivilege):
            return Seen(f"not known to this login: {error_text(error)}")
        took_too_long = isinstance(getattr(error, "orig", None), QueryCanceledError)
        cure = "ask again once Postgres is less busy" if took_too_long else "see whether this login may read it"
        return Seen("", [Trouble(f"could not be asked: {error_text(error)}", cure)])
