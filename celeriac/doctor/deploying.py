"""What is stored that this code cannot run: asked in a deploy's pipeline, before the new code is started."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any

from sqlalchemy import Connection, text

from celeriac.app import Celeriac
from celeriac.errors import BadArguments
from celeriac.roles.declare import Declared, Roles
from celeriac.store.built_in import is_built_in
from celeriac.store.plans import lookups

#: Unfinished tasks of a role are counted to here, and so many of them are looked at: the newest.
MOST = 10_000

# INVARIANT: one descent per role that has unfinished tasks, and so many entries of each.
WAITING = text("""
WITH RECURSIVE busy AS (
    (SELECT role FROM celeriac.tasks ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM busy, LATERAL (
        SELECT role FROM celeriac.tasks WHERE role > busy.role ORDER BY role LIMIT 1) AS next
)
SELECT busy.role, r.definition, r.parameters, (
    SELECT count(*) FROM (SELECT FROM celeriac.tasks WHERE role = busy.role ORDER BY -id LIMIT :most) AS newest) AS n,
    ARRAY(SELECT role FROM celeriac.roles) AS known
FROM busy LEFT JOIN celeriac.roles r ON r.role = busy.role ORDER BY busy.role
""")

# What holds a workflow's place and runs no handler has no arguments.
SHAPES = text("""
SELECT positional, names, count(*) AS n, min(id) AS first FROM (
    SELECT id, jsonb_array_length(args) AS positional, ARRAY(SELECT jsonb_object_keys(kwargs) ORDER BY 1) AS names
    FROM (SELECT id, args, kwargs, headers FROM celeriac.tasks WHERE role = :role ORDER BY -id LIMIT :most) AS newest
    WHERE headers -> 'canvas' ?| '{gate,fall_out}' IS NOT TRUE) AS shaped
GROUP BY positional, names ORDER BY n DESC, first
""")

# A link gets the result of the task before it as its first argument, unless it is immutable.
LINKS = text("""
SELECT task, positional, names, count(*) AS n, min(id) AS first FROM (
    SELECT newest.id, link ->> 'task' AS task, jsonb_array_length(coalesce(link -> 'args', '[]'))
            + CASE WHEN coalesce(CAST(link ->> 'immutable' AS boolean), false) THEN 0 ELSE 1 END AS positional,
        ARRAY(SELECT jsonb_object_keys(coalesce(link -> 'kwargs', '{}')) ORDER BY 1) AS names
    FROM (SELECT id, headers FROM celeriac.tasks WHERE role = :role ORDER BY -id LIMIT :most) AS newest,
        LATERAL jsonb_array_elements(coalesce(headers #> '{canvas,chain}', '[]')
            || coalesce(headers #> '{canvas,callbacks}', '[]')) AS link
    WHERE headers -> 'canvas' IS NOT NULL) AS linked
GROUP BY task, positional, names ORDER BY n DESC, first
""")

# Those of the beat config are the code's own, which checks them itself.
SCHEDULES = text("""
SELECT name, target, ARRAY(SELECT jsonb_object_keys(kwargs) ORDER BY 1) AS names FROM celeriac.scheduled_jobs
WHERE kind = 'task' AND enabled AND declared IS NULL ORDER BY name
""")

SERVED = text("""
SELECT EXISTS (SELECT FROM celeriac.workers WHERE status = 'active' AND queues ? :queue
    AND last_heartbeat_at > statement_timestamp() - interval '2 minutes')
""")


def against_database(app: Celeriac, others: Collection[str] = ()) -> list[str]:
    """A line for each kind of stored work that this code cannot run, with how much there is and what to do.

    `others`: roles that another application on this database declares.
    """
    with app.database.transaction() as connection, lookups(connection):
        rows = connection.execute(WAITING, {"most": MOST + 1}).all()
        waiting = [row for row in rows if not is_built_in(row.role) and row.role not in others]
        lines = [line for row in waiting for line in _of_role(app, connection, row, others)]
        return [*lines, *_schedules(app.roles, connection, others)]


def renamed(app: Celeriac) -> Iterator[str]:
    """Roles with unfinished tasks that this code may have renamed: one it alone knows takes the same parameters."""
    with app.database.transaction() as connection, lookups(connection):
        rows = connection.execute(WAITING, {"most": MOST + 1}).all()
    for row in rows:
        if app.roles.get(row.role) is None and (meant := _renamed(app.roles, row)):
            yield (
                f"role {row.role!r} has {_many(row.n)} and is not declared here: was it renamed to {meant!r}? "
                "`celeriac check --against-database` says what that leaves behind"
            )


def _of_role(app: Celeriac, connection: Connection, row: Any, others: Collection[str]) -> Iterator[str]:
    declared = app.roles.get(row.role)
    if declared is None:
        yield _gone(app.roles, row)
    else:
        yield from _arguments(connection, declared)
        yield from _options(app.main or "tasks", connection, declared, row)
    for link in connection.execute(LINKS, {"role": row.role, "most": MOST}):
        yield from _link(app.roles, row.role, link, others)


def _gone(roles: Roles, row: Any) -> str:
    meant = _renamed(roles, row)
    hint = f" (renamed to {meant!r}?)" if meant else ""
    return (
        f"role {row.role!r} is gone{hint}: {_many(row.n)} of it can no more run; keep a task of that name until they "
        f"are over, or end them with `celeriac cancel --role {row.role}`; is it another application's, say "
        f"`--other {row.role}`"
    )


def _arguments(connection: Connection, declared: Declared) -> Iterator[str]:
    for shape in connection.execute(SHAPES, {"role": declared.role.name, "most": MOST}):
        if problem := _does_not_fit(declared, shape):
            yield (
                f"{_many(shape.n)} of role {declared.role.name!r} would fail, task {shape.first} for one: {problem}; "
                "give what is new a default and accept what is old until they are over, or change them with "
                f"`celeriac edit {shape.first} NAME=VALUE`"
            )


def _options(main: str, connection: Connection, declared: Declared, row: Any) -> Iterator[str]:
    role, before = declared.role, row.definition or {}
    if not role.enabled():
        yield (
            f"role {role.name!r} is switched off by {role.enabled_by}: {_many(row.n)} of it would wait; set "
            f"{role.enabled_by}=true, or pause it where everybody sees that: `celeriac pause role {role.name}`"
        )
    if (
        role.queue != before.get("queue", role.name)
        and not connection.execute(SERVED, {"queue": role.queue}).scalar_one()
    ):
        yield (
            f"role {role.name!r} moves to the queue {role.queue!r}, which no worker takes: {_many(row.n)} of it would "
            f"wait; run `celery -A {main} worker -Q {role.queue}` as well"
        )
    for option, what in (("lock_by", "lock"), ("unique_by", "unique")):
        new, old = declared.row()["definition"][option], before.get(option)
        if new != old and old is not None:
            yield (
                f"role {role.name!r} has {option}={new!r}, before {old!r}: {_many(row.n)} of it keep their former "
                f"{what} keys, so old and new tasks do not exclude each other; pause the role until they are over"
            )


def _link(roles: Roles, role: str, link: Any, others: Collection[str]) -> Iterator[str]:
    if link.task is None or link.task.startswith("celery.") or link.task in others:
        return
    declared = roles.get(link.task)
    if declared is None:
        yield (
            f"{_many(link.n)} of role {role!r} are followed by {link.task!r}, which is gone, task {link.first} for "
            "one; keep a task of that name until they are over"
        )
    elif problem := _does_not_fit(declared, link):
        yield (
            f"{_many(link.n)} of role {role!r} are followed by a call that would fail, task {link.first} for one: "
            f"{problem}; accept the former arguments until they are over"
        )


def _schedules(roles: Roles, connection: Connection, others: Collection[str]) -> Iterator[str]:
    for job in connection.execute(SCHEDULES):
        if job.target in others or is_built_in(job.target):
            continue
        declared = roles.get(job.target)
        if declared is None:
            yield (
                f"the schedule {job.name!r} enqueues {job.target!r}, which is gone: change it, or "
                f"`celeriac schedule toggle '{job.name}' off`"
            )
        elif problem := _does_not_fit(declared, job, positional=0):
            yield f"the schedule {job.name!r} would be refused: {problem}; change its arguments"


def _does_not_fit(declared: Declared, shape: Any, positional: int | None = None) -> str | None:
    args = (None,) * (shape.positional if positional is None else positional)
    try:
        declared.signature.bind(args, dict.fromkeys(shape.names))
    except BadArguments as error:
        return str(error).removesuffix("; nothing was enqueued")
    return None


def _renamed(roles: Roles, row: Any) -> str | None:
    """A role that this code alone knows and that takes the same parameters as that one did."""
    new = [one for one in roles.all() if one.role.name not in row.known and not is_built_in(one.role.name)]
    same = [one.role.name for one in new if row.parameters and one.signature.describe() == row.parameters]
    close = get_close_matches(row.role, same, n=1, cutoff=0.0)
    return close[0] if close else None


def _many(n: int) -> str:
    return f"{MOST:,}+ unfinished tasks" if n > MOST else f"{n:,} unfinished task{'' if n == 1 else 's'}"
