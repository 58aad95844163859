"""Problems of an app and its servers, found without starting anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from celeriac import insights
from celeriac.alerts.review import rules_of
from celeriac.dispatch.window import AHEAD
from celeriac.doctor.deploying import Examined, Misfit, against_database, renamed
from celeriac.errors import CeleriacError, ConfigurationError
from celeriac.roles.keys import Hashed, names_in, parts_of
from celeriac.roles.options import secrets_in
from celeriac.schedules import operate, written
from celeriac.schedules.decide import Entry
from celeriac.schedules.listed import entries
from celeriac.schedules.timetable import Timetable
from celeriac.seam import serializers
from celeriac.store.invariants import violations
from celeriac.store.migrate import refuse_narrow, unapplied
from celeriac.worker.controller import queues_of

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Seconds that a new task may wait for tasks of other roles before a note mentions it.
BESIDE = 5.0


def problems(app: Celeriac, *, deep: bool = False) -> list[str]:
    """Return a line for each problem, with what to do. `deep`: also for each stored task that breaks an invariant."""
    declared = [*_schedules(app), *_wrong_names(app), *serializers.others(app, calls=True)]
    return list(dict.fromkeys([*declared, *_database(app, deep), *_redis(app)]))


def _schedules(app: Celeriac) -> Iterator[str]:
    try:
        listed = entries(app)
    except ConfigurationError as error:
        yield str(error)
        return
    try:
        for entry in listed.values():
            yield from _cannot_run(app, entry)
        with app.database.statement() as connection:
            yield from written.of_others(connection, listed.values(), Timetable(app).owner)
    except SQLAlchemyError:
        return  # problems of the database are reported elsewhere


def undeclared_secrets(app: Celeriac) -> Iterator[str]:
    """Yield parameters that look like secrets although their role declares nothing `sensitive`, and declared names that
    may be misspelt.
    """
    for declared in app.roles.own():
        if declared.role.sensitive is None and (names := secrets_in(declared.signature.names)):
            parameters = ", ".join(map(repr, names))
            yield (
                f"role {declared.role.name!r}: every surface shows its {parameters}: say sensitive=({parameters},) "
                f"where that is secret, sensitive=() where it is not"
            )
        for name in sorted({*(declared.role.sensitive or ())} - {*declared.signature.names}):
            if meant := get_close_matches(name, declared.signature.names, n=1):
                yield (
                    f"role {declared.role.name!r}: sensitive names {name!r}, which is no parameter and hides only a "
                    f"key of that name within arguments; did you mean {meant[0]!r}?"
                )


def guessable_keys(app: Celeriac) -> Iterator[str]:
    """Yield hashed keys by which one account can guess another's secrets: an enqueue shows whether its key is taken."""
    for declared in app.roles.own():
        role = declared.role
        for option, field in (("lock_by", "lock_key"), ("unique_by", "unique_key")):
            key = getattr(role, option)
            if not isinstance(key, Hashed) or not isinstance(key.key, str):
                continue
            secrets = ", ".join(map(repr, sorted(parts_of(key.key) & {*(role.sensitive or ())})))
            accounts = names_in(role.fair_by) if isinstance(role.fair_by, str) else []
            problem = (
                f"role {role.name!r}: whoever may enqueue it can find out others' {secrets} by trying, as a key that "
                f"is taken is answered: {option}="
            )
            if secrets and accounts and not {*accounts} & {*names_in(key.key)}:
                yield f"{problem}Hashed(…) of {', '.join(accounts)} as well is each account's own"
            elif secrets and accounts and not key.salt:
                yield f"{problem}Hashed(…, salt=…) cannot be given as {field} by who has no salt"


def slow_windows(app: Celeriac) -> Iterator[str]:
    """Yield why new tasks wait long: a window set by hand, other roles' tasks. Nothing if Postgres does not answer."""
    try:
        with app.database.statement() as connection:
            rows = insights.slow_windows(connection, AHEAD, BESIDE)
    except (ConfigurationError, SQLAlchemyError):
        return  # reported among the problems
    for row in rows:
        if row.is_said and row.own > AHEAD:
            yield (
                f"role {row.role!r}: with window={row.window} a newcomer waits {row.own:.1f} s for what is claimed "
                "before it: leave window out, and it is about a second"
            )
        if row.others > BESIDE:
            yield (
                f"role {row.role!r}: a newcomer waits {row.others:.0f} s for the turns of roles with longer tasks that "
                "share its workers: give it workers of its own, by -Q"
            )


def stored_work(app: Celeriac, others: Collection[str], queues: Collection[str]) -> Examined:
    """Return a line for each kind of stored work that this code cannot run."""
    try:
        return against_database(app, others, queues)
    except ConfigurationError:
        return Examined()  # reported among the problems
    except SQLAlchemyError as error:
        what = f"what is stored could not be read: {str(error).splitlines()[0]}"
        return Examined([Misfit("unread", "", what, "try again once Postgres is less busy")])


def renamed_roles(app: Celeriac) -> list[str]:
    """Return roles with unfinished tasks that this code may have renamed; none if Postgres does not answer."""
    try:
        return [*renamed(app)]
    except (ConfigurationError, SQLAlchemyError):
        return []  # reported among the problems


def _wrong_names(app: Celeriac) -> Iterator[str]:
    """Yield the errors in the names of alert rules and of the worker's role."""
    for read in (partial(rules_of, app), partial(queues_of, app.roles, app.settings.worker_role)):
        try:
            read()
        except (ConfigurationError, ImportError) as error:
            yield str(error)


def _cannot_run(app: Celeriac, entry: Entry) -> Iterator[str]:
    """Yield the error of a schedule's first tick: an undeclared role, or arguments that its handler does not take."""
    try:
        operate.refuse_what_cannot_run(app.role_declared, app.settings.max_argument_bytes, entry)
    except CeleriacError as error:
        yield f"schedule {entry.name!r}: {str(error).removesuffix('; nothing was enqueued')}"


def _database(app: Celeriac, deep: bool) -> Iterator[str]:
    try:
        with app.database.statement() as connection:
            refuse_narrow(connection)
            if missing := unapplied(connection, app.migrations):
                yield f"the schema lacks {', '.join(sorted(missing))}: run `celeriac migrate`"
            elif deep:
                yield from violations(connection)
    except ConfigurationError as error:
        yield str(error)
    except SQLAlchemyError as error:
        yield f"Postgres does not answer: {str(error).splitlines()[0]}; check DATABASE_URL"


def _redis(app: Celeriac) -> Iterator[str]:
    try:
        _ = app.redis_url
    except ConfigurationError as error:
        yield str(error)
        return
    if not app.publisher.answers():
        yield "Redis does not answer: check REDIS_URL; work goes on without it, but starts later"
