"""Run the checks in their order, for `celeriac doctor`, the page System and `/api/doctor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from psycopg2.errors import InsufficientPrivilege
from psycopg2.extensions import QueryCanceledError
from sqlalchemy.exc import SQLAlchemyError

from celeriac.alerts.judgement import PATIENCE, Judgement, judge, matters
from celeriac.alerts.rules import OF_THE_SCHEMA, Above
from celeriac.app import Celeriac
from celeriac.doctor import embedded, machinery, work
from celeriac.doctor.findings import Seen, Trouble, error_text
from celeriac.errors import ConfigurationError
from celeriac.insights.history.alerts import damage
from celeriac.store.failures import is_locked
from celeriac.store.patience import HURRIED, patient

#: The subjects of the checks: the basis of everything, then the four questions of the crawl jobs' document.
MACHINERY = "what all rests on"
PROCESSING = "tasks are not processed"
RETRYING = "failed tasks are not retried"
SCHEDULED = "schedules do not run"
PRIORITY = "priorities do not count"


@dataclass(frozen=True, slots=True)
class SystemCheck:
    """A check. `needs`: the checks that have to succeed before this one can be made. `about`: the question it belongs
    to. `rules`: the rules of alerts whose findings it shows. `wait`: waits at most some seconds for answers about the
    embedded servers.
    """

    name: str
    look: Callable[[Celeriac], Seen]
    needs: frozenset[str]
    about: str
    rules: tuple[str, ...] = ()
    wait: Callable[[Any, float], None] | None = None


def _well(text: str) -> Callable[[Celeriac], Seen]:
    """Return a check that reads nothing itself, because its rules find what is wrong."""
    return lambda _: Seen(text)


_POSTGRES = frozenset({"postgres"})
_SCHEMA = _POSTGRES | {"revision"}

CHECKS = (
    SystemCheck("postgres", machinery.postgres, frozenset(), MACHINERY),
    SystemCheck(
        "writes", _well("Postgres takes them, and commits end"), _POSTGRES, MACHINERY, ("read_only", "slow_commits")
    ),
    SystemCheck("redis", machinery.redis, frozenset(), MACHINERY, ("redis_away", "redis_full", "slow_redis")),
    SystemCheck("revision", machinery.revision, _POSTGRES, MACHINERY, ("schema_behind", "schema_ahead")),
    SystemCheck("schema", machinery.schema, _SCHEMA, MACHINERY),
    SystemCheck(
        "locks", _well("nobody holds what the engine needs"), _SCHEMA, MACHINERY, ("locked_table", "held_lock")
    ),
    SystemCheck("old transactions", machinery.transactions, _SCHEMA, MACHINERY, ("held_snapshot",)),
    SystemCheck("disk", _well("there is room"), _SCHEMA, MACHINERY, ("disk_full",)),
    SystemCheck(
        "speed", _well("no statement runs for long that finds no processor"), _SCHEMA, MACHINERY, ("slow_postgres",)
    ),
    SystemCheck("dead rows", machinery.dead_rows, _POSTGRES, MACHINERY),
    SystemCheck("connections", machinery.connections, _POSTGRES, MACHINERY, ("connections_full",)),
    SystemCheck("clock", machinery.clock, _POSTGRES, MACHINERY),
    SystemCheck(
        "workers", machinery.workers, _SCHEMA, PROCESSING,
        ("dead_worker", "short_of_memory", "drains_on", "clocks_apart", "old_worker"),
    ),
    SystemCheck(
        "roles", machinery.roles, _SCHEMA, PROCESSING,
        ("no_worker", "idle_while_ready", "unfair", "flood", "long_wait"),
    ),
    SystemCheck("lock keys", _well("each that is waited for moves"), _SCHEMA, PROCESSING, ("stuck_key",)),
    SystemCheck("beat", machinery.beat, _SCHEMA, SCHEDULED, ("beat_silent", "missed_schedule")),
    SystemCheck("sweeps", work.sweeps, _SCHEMA, SCHEDULED, ("failing_sweep",)),
    SystemCheck("tickets", machinery.tickets, _SCHEMA, PROCESSING, ("lost_tickets", "late_finish")),
    SystemCheck("pauses", work.pauses, _SCHEMA, PROCESSING),
    SystemCheck(
        "outcomes", _well("nothing runs for too long, and no role fails often"), _SCHEMA, PROCESSING,
        ("fails_now", "account_fails", "slow_role", "failed_rate", "long_running"),
    ),
    SystemCheck("retries", work.retries, _SCHEMA, RETRYING),
    SystemCheck("schedules", work.schedules, _SCHEMA, SCHEDULED, ("skipped_instants",)),
    SystemCheck("priorities", work.priorities, _SCHEMA, PRIORITY),
    SystemCheck("outbox", _well("what was accepted is inserted"), _SCHEMA, PROCESSING, ("stuck_outbox",)),
    SystemCheck("dead letters", _well("every message became a task"), _SCHEMA, PROCESSING, ("dead_letters",)),
    SystemCheck("embedded servers", embedded.look, _POSTGRES, MACHINERY, wait=embedded.wait),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the doctor's answer. `runbook`: the page about it, if there is one."""

    check: str
    ok: bool
    says: str
    cure: str | None
    about: str
    runbook: str | None = None


def examine(app: Celeriac, patience: float = 0.0) -> list[Finding]:
    """Return the findings, the worst first, then those that are well; without the checks of parts that are not there.
    `patience`: how long (seconds) a check may wait for the network; without it, a check shows what is known already.
    A lock is waited for only briefly, so that whoever holds it is named at once.
    """
    failed: set[str] = set()
    limit = PATIENCE
    ranked: list[tuple[int, Finding]] = []
    judged: Judgement | None = None
    for check in CHECKS:
        if failed & check.needs:
            continue
        if check.rules and judged is None:
            judged = _judged(app)
        above = [one for one in judged.wrong if one.name in check.rules and matters(one)] if judged else []
        unread = [rule for rule in check.rules if judged is None or rule in judged.unread]
        if check.wait is not None and patience:
            check.wait(app.stack_in_use, patience)
        seen = Seen("") if above and check.name in _ASK_THE_SAME else _seen(app, check, limit)
        limit = HURRIED if seen is _LOCKED else limit
        if _is_locked_out(judged, seen, unread) and not above:
            continue
        if (seen.troubles and seen is not _LOCKED) or any(one.name in OF_THE_SCHEMA for one in above):
            failed.add(check.name)
        wrong = [_of_rule(check, one) for one in above]
        own = -1 if check.name in _FIRST else _OWN
        if unread and not wrong and seen.text:
            why = f"not known: {', '.join(unread)} could not be read"
            cure = "ask again; if it stays so, see whether this login may read it"
            wrong = [(_OWN, Finding(check.name, False, why, cure, check.about))]
        wrong += [(own, Finding(check.name, False, one.text, one.cure, check.about)) for one in seen.troubles]
        well = seen.text
        if well and judged is not None and {*check.rules} & {*judged.unseen}:
            well += f"; of other logins' sessions it is not known: {judged.grants}"
        ranked += wrong or [(_WELL, Finding(check.name, True, well, None, check.about))]
    return [finding for _, finding in sorted(ranked, key=lambda one: one[0])]


#: Checks whose findings come first; the rank of other checks' findings among those of rules; the rank of what is well.
_FIRST, _OWN, _WELL = frozenset({"postgres", "revision", "schema"}), 150, 1_000

#: Findings after which the same check would wait for the same fault.
_ASK_THE_SAME = frozenset({"redis", "revision"})

#: The result of a check that met somebody's lock.
_LOCKED = Seen("", [Trouble("not known: somebody has just locked what it reads", "ask again in some seconds")])


def _is_locked_out(judged: Judgement | None, seen: Seen, unread: list[str]) -> bool:
    """Return whether a lock that is named already keeps the check, or its rules, from what they read."""
    is_named = judged is not None and any(one.name == "locked_table" for one in judged.wrong)
    return is_named and (seen is _LOCKED or bool(unread))


def _of_rule(check: SystemCheck, one: Above) -> tuple[int, Finding]:
    finding = Finding(check.name, False, f"{one.subject}: {one.says}", one.cure or None, check.about, one.runbook)
    return damage(one.name, one.severity), finding


def _judged(app: Celeriac) -> Judgement | None:
    """Return the rules' findings; None if nothing can be read, for which the checks give the reason."""
    try:
        with app.database.reading() as connection:
            return judge(connection, app)
    except (ConfigurationError, SQLAlchemyError):
        return None


def _seen(app: Celeriac, check: SystemCheck, limit: float) -> Seen:
    try:
        with patient(limit):
            return check.look(app)
    except ConfigurationError as error:
        return Seen("", [Trouble(str(error), "mend the setting; `celeriac check` tells when it is right")])
    except SQLAlchemyError as error:
        if is_locked(error):
            return _LOCKED
        if isinstance(getattr(error, "orig", None), InsufficientPrivilege):
            return Seen(f"not known to this login: {error_text(error)}")
        took_too_long = isinstance(getattr(error, "orig", None), QueryCanceledError)
        cure = "ask again once Postgres is less busy" if took_too_long else "see whether this login may read it"
        return Seen("", [Trouble(f"could not be asked: {error_text(error)}", cure)])
