"""Stored work that this code cannot run: checked in a deploy's pipeline, before the new code is started."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from sqlalchemy import Connection, text

from celeriac.app import Celeriac
from celeriac.canvas.rests import ENTRY
from celeriac.errors import BadArguments, ConfigurationError, EnqueueRefused
from celeriac.insights.tasks.counting import roles_in
from celeriac.roles.bounds import outside
from celeriac.roles.declare import Declared, Roles
from celeriac.schedules.arguments import task_of
from celeriac.schedules.decide import PlannedJob
from celeriac.store.role_names import is_built_in
from celeriac.store.shell import argument, word

#: The number to which a role's unfinished tasks are counted, and how many of them are read: the newest and the oldest.
MOST = 10_000

#: Maximum number of links read for each existing task.
LINKS_EACH = 10

#: Maximum number of blocks of links read of each long chain (some 1,000 links), once for all its tasks.
BLOCKS_EACH = 125

#: After how many seconds a statement is ended, and the check with it.
PATIENCE = 30

READ_ONLY = f"SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = '{PATIENCE}s'"

# INVARIANT: one descent per role that has unfinished tasks, and so many entries of each.
WAITING = text(f"""
{roles_in("tasks", "busy")}
SELECT busy.role, r.definition, r.parameters, (
    SELECT count(*) FROM (SELECT FROM celeriac.tasks WHERE role = busy.role ORDER BY -id LIMIT :most) AS newest) AS n,
    ARRAY(SELECT role FROM celeriac.roles) AS known
FROM busy LEFT JOIN celeriac.roles r ON r.role = busy.role ORDER BY busy.role
""")

# Half of them are the newest and half the oldest, because the two ends of a backlog come from different releases.
_SAMPLE = """
newest AS (
    SELECT id, args, kwargs, headers FROM celeriac.tasks WHERE role = :role ORDER BY -id LIMIT :half
), sample AS (
    SELECT * FROM newest
    UNION ALL
    (SELECT id, args, kwargs, headers FROM celeriac.tasks
    WHERE role = :role AND -id > (SELECT max(-id) FROM newest) ORDER BY -id DESC LIMIT :half)
)"""

# A row that only holds a place in a workflow has no arguments and runs no handler.
SHAPES = text(f"""
WITH {_SAMPLE}
SELECT positional, names, count(*) AS n, min(id) AS first FROM (
    SELECT id, jsonb_array_length(args) AS positional, ARRAY(SELECT jsonb_object_keys(kwargs) ORDER BY 1) AS names
    FROM sample WHERE headers -> 'canvas' ?| '{{gate,fall_out}}' IS NOT TRUE) AS shaped
GROUP BY positional, names ORDER BY n DESC, first
""")

# Most links of a long chain are stored beside its tasks. A link gets the result of the task before it as its first
# argument, unless it is immutable. A link that is a workflow has its tasks within it; `celery.map` and its like have
# theirs among their arguments, and call it for each item. An errback is called with as many arguments as it takes.
LINKS = text(f"""
WITH RECURSIVE {_SAMPLE}, chains AS MATERIALIZED (
    SELECT DISTINCT ON (chain) * FROM (
        SELECT id, CAST(value #>> '{{kwargs,chain}}' AS uuid) AS chain,
            CAST(value #>> '{{kwargs,place}}' AS integer) AS place
        FROM sample, jsonb_array_elements(headers #> '{{canvas,chain}}') WHERE value ->> 'task' = '{ENTRY}') AS entry
    ORDER BY chain, place, id
), links AS (
    SELECT sample.id, link.link, is_loose FROM sample, LATERAL (
        SELECT value, false FROM jsonb_array_elements(coalesce(headers #> '{{canvas,chain}}', '[]')
            || coalesce(headers #> '{{canvas,callbacks}}', '[]'))
        UNION ALL SELECT value, true FROM jsonb_array_elements(coalesce(headers #> '{{canvas,errbacks}}', '[]'))
        UNION ALL SELECT kwargs -> 'task', true WHERE :role IN ('celery.map', 'celery.starmap')
    ) AS link (link, is_loose)
    UNION ALL
    SELECT id, jsonb_array_elements(r.links), false FROM chains, LATERAL (
        SELECT links FROM celeriac.chain_rests WHERE chain = chains.chain AND place >= chains.place
        ORDER BY chain, place LIMIT {BLOCKS_EACH}) AS r
    UNION ALL
    SELECT id, part.value, is_loose FROM links, LATERAL jsonb_array_elements(CASE link ->> 'subtask_type'
        WHEN 'chain' THEN link #> '{{kwargs,tasks}}'
        WHEN 'group' THEN link #> '{{kwargs,tasks}}'
        WHEN 'chord' THEN jsonb_build_array(link #> '{{kwargs,body}}') || (link #> '{{kwargs,header}}')
        ELSE '[]' END) AS part
)
SELECT task, positional, names, queue, priority, is_loose, count(DISTINCT id) AS n, min(id) AS first FROM (
    SELECT id, link ->> 'task' AS task, is_loose, link #>> '{{options,queue}}' AS queue,
        link #>> '{{options,priority}}' AS priority, jsonb_array_length(coalesce(link -> 'args', '[]'))
            + CASE WHEN coalesce(CAST(link ->> 'immutable' AS boolean), false) THEN 0 ELSE 1 END AS positional,
        ARRAY(SELECT jsonb_object_keys(coalesce(link -> 'kwargs', '{{}}')) ORDER BY 1) AS names
    FROM (SELECT * FROM links LIMIT :links) AS seen
    WHERE coalesce(link ->> 'subtask_type', '') NOT IN ('chain', 'group', 'chord')) AS linked
GROUP BY task, positional, names, queue, priority, is_loose ORDER BY n DESC, first
""")

# Schedules of the beat config are left out: they are the code's own, which checks them itself.
SCHEDULES = text("""
SELECT * FROM celeriac.scheduled_jobs WHERE kind = 'task' AND enabled AND declared IS NULL ORDER BY name
""")

# The queues that a role's newest tasks name themselves, with counts.
QUEUES = text("""
SELECT queue, count(*) AS n, min(id) AS first FROM (
    SELECT id, queue FROM celeriac.tasks WHERE role = :role ORDER BY -id LIMIT :most) AS newest
WHERE queue IS NOT NULL GROUP BY queue ORDER BY queue
""")

PARAMETERS = text("SELECT role, parameters FROM celeriac.roles ORDER BY role")

SERVED = text("""
SELECT EXISTS (SELECT FROM celeriac.workers WHERE status = 'active' AND queues ? :queue
    AND celeriac.is_heard(last_heartbeat_at))
""")


@dataclass(frozen=True, slots=True)
class Misfit:
    """Stored work that this code cannot run: `name` is its role or schedule, `example` one of the tasks. `at_least`:
    there may be more of them than `tasks`, because not all were read.
    """

    kind: str
    name: str
    problem: str
    cure: str
    tasks: int | None = None
    at_least: bool = False
    example: int | None = None

    def __str__(self) -> str:
        return f"{self.problem}; {self.cure}"


@dataclass(slots=True)
class Examined:
    """The result of the check. `notes`: the roles of which not every task was read."""

    misfits: list[Misfit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Release:
    """The code to be deployed. `others`: roles of other applications. `queues`: those that its workers will serve.
    `usual_queue`: the queue that Celery's router gives to calls that name none. `limit`: most bytes of arguments.
    `parameters`: those of each role in the running release.
    """

    roles: Roles
    main: str
    others: Collection[str]
    queues: Collection[str]
    usual_queue: str
    limit: float
    parameters: Mapping[str, Any]


def against_database(app: Celeriac, others: Collection[str] = (), queues: Collection[str] = ()) -> Examined:
    """Return the stored work that this code cannot run, kind by kind.

    Writes nothing. `others`: roles that another application on this database declares. `queues`: those that the new
    workers will serve; by default those that a live worker serves.
    """
    examined = Examined()
    with app.database.reading() as connection:
        connection.exec_driver_sql(READ_ONLY)
        new = _Release(
            app.roles, app.main or "tasks", others, queues, app.conf.task_default_queue,
            app.settings.max_argument_bytes, {row.role: row.parameters for row in connection.execute(PARAMETERS)},
        )  # fmt: skip
        for row in connection.execute(WAITING, {"most": MOST + 1}).all():
            if row.role not in others:
                examined.misfits += _of_role(new, connection, row)
                examined.notes += _not_all(row)
        examined.misfits += _schedules(new, connection)
    return examined


def renamed(app: Celeriac) -> Iterator[str]:
    """Yield roles with unfinished tasks that this code may have renamed: a new role takes the same parameters."""
    with app.database.reading() as connection:
        rows = connection.execute(WAITING, {"most": MOST + 1}).all()
    for row in rows:
        if app.roles.get(row.role) is None and (meant := _renamed(app.roles, row)):
            yield (
                f"role {row.role!r} has {_many(row.n)} and is not declared here: was it renamed to {meant!r}? "
                "`celeriac check --against-database` says what that leaves behind"
            )


def _not_all(row: Any) -> Iterator[str]:
    if row.n > MOST:
        yield (
            f"role {row.role!r} has {_many(row.n)}: the newest and the oldest {MOST // 2:,} of them were looked at, "
            "and counts are of these"
        )


def _of_role(new: _Release, connection: Connection, row: Any) -> Iterator[Misfit]:
    declared = new.roles.get(row.role)
    if declared is not None and not is_built_in(row.role):
        yield from _arguments(new, connection, declared, row)
        yield from _options(new, connection, declared, row)
    elif not is_built_in(row.role):
        yield _gone(new, row)
    some = {"role": row.role, "half": MOST // 2, "links": MOST * LINKS_EACH}
    for link in connection.execute(LINKS, some):
        yield from _link(new, row, link)


def _gone(new: _Release, row: Any) -> Misfit:
    meant = _renamed(new.roles, row)
    hint = f" (renamed to {meant!r}?)" if meant else ""
    cure = (
        f"say so where it is declared, `role={meant!r}, aliases=({row.role!r},)`, or run `celeriac roles move "
        f"{argument(row.role)} {word(meant)}` once the new code runs"
        if meant
        else "keep a task of that name until they are over, end them with "
        f"`celeriac tasks cancel --role {word(row.role)}`, "
        f"or, where it has another name now, run `celeriac roles move {argument(row.role)} NAME`"
    )
    return _misfit(
        row, "role gone", f"role {row.role!r} is gone{hint}: {_many(row.n)} of it can no more run",
        f"{cure}; is it another application's, say `--other {word(row.role)}`",
    )  # fmt: skip


def _arguments(new: _Release, connection: Connection, declared: Declared, row: Any) -> Iterator[Misfit]:
    for shape in connection.execute(SHAPES, {"role": row.role, "half": MOST // 2}):
        if problem := _does_not_fit(new, declared, shape, row.role):
            yield _misfit(
                row, "arguments",
                f"{_many(shape.n, row)} of role {row.role!r} would fail, task {shape.first} for one: {problem}",
                "give what is new a default and accept what is old until they are over, or change them with "
                f"`celeriac tasks edit {shape.first} NAME=VALUE`", shape,
            )  # fmt: skip


def _options(new: _Release, connection: Connection, declared: Declared, row: Any) -> Iterator[Misfit]:
    role, before = declared.role, row.definition or {}
    if not role.enabled():
        yield _misfit(
            row, "switched off",
            f"role {role.name!r} is switched off by {role.enabled_by}: {_many(row.n)} of it would wait",
            f"set {role.enabled_by}=true, or pause it where everybody sees that: "
            f"`celeriac roles pause {argument(role.name)}`",
        )  # fmt: skip
    was = before.get("queue", role.name) if declared.successor is None else role.queue  # that of a new role's name
    if not _is_served(new, connection, role.queue, was):
        moves = "moves to" if role.queue != was else "waits in"
        yield _misfit(
            row, "queue",
            f"role {role.name!r} {moves} the queue {role.queue!r}, which no worker takes: {_many(row.n)} of it would "
            "wait", f"run `celery -A {new.main} worker -Q {word(role.queue)}` as well",
        )  # fmt: skip
    yield from _queues(new, connection, declared, row)
    yield from _keys(declared, row, before)


def _queues(new: _Release, connection: Connection, declared: Declared, row: Any) -> Iterator[Misfit]:
    """Check the queues that tasks keep from their calls."""
    for own in connection.execute(QUEUES, {"role": row.role, "most": MOST}):
        if own.queue not in declared.role.queues:
            yield _misfit(
                row, "queue gone",
                f"role {row.role!r} has the queue {own.queue!r} no more: {_many(own.n, row)} would wait there, task "
                f"{own.first} for one", "list it among its `queues` until they are over", own,
            )  # fmt: skip
        elif not _is_served(new, connection, own.queue, own.queue):
            yield _misfit(
                row, "queue",
                f"role {row.role!r} waits in the queue {own.queue!r}, too, which no worker takes: {_many(own.n, row)} "
                "would wait", f"run `celery -A {new.main} worker -Q {word(own.queue)}` as well", own,
            )  # fmt: skip


def _is_served(new: _Release, connection: Connection, queue: str, before: str) -> bool:
    if new.queues:
        return queue in new.queues
    return queue == before or bool(connection.execute(SERVED, {"queue": queue}).scalar_one())


def _keys(declared: Declared, row: Any, before: Any) -> Iterator[Misfit]:
    """Check the keys of tasks, which keep those that were declared when they were enqueued, or none."""
    for option, what in (("lock_by", "lock"), ("unique_by", "unique")):
        new, old = declared.row()["definition"][option], before.get(option)
        if new == old or not before:
            continue
        kept = "have no" if old is None else "keep their former"
        yield _misfit(
            row, "keys",
            f"role {row.role!r} has {option}={new!r}, before {old!r}: {_many(row.n)} of it {kept} {what} keys, so old "
            "and new tasks do not exclude each other",
            f"deploy once they are over, or end them with `celeriac tasks cancel --role {word(row.role)}`",
        )  # fmt: skip


def _link(new: _Release, row: Any, link: Any) -> Iterator[Misfit]:
    if link.task is None or is_built_in(link.task) or link.task in new.others:
        return
    declared = new.roles.get(link.task)
    followed, example = f"{_many(link.n, row)} of role {row.role!r} are followed by", f"task {link.first} for one"
    if declared is None:
        yield _misfit(
            row, "link gone", f"{followed} {link.task!r}, which is gone, {example}",
            "keep a task of that name until they are over, or name it among the `aliases` of its successor", link,
        )  # fmt: skip
    elif problem := None if link.is_loose else _refused(new, declared, link):
        yield _misfit(
            row, "link refused", f"{followed} a call that would fail, {example}: {problem}",
            "accept what was right before until they are over", link,
        )  # fmt: skip


def _refused(new: _Release, declared: Declared, link: Any) -> str | None:
    """Return why the call of a link would be refused; None if it would not be."""
    role = declared.role
    if problem := _does_not_fit(new, declared, link, link.task):
        return problem
    if link.queue not in (None, role.queue, new.usual_queue, *role.queues):
        return f"{role.name}: its queue is {role.queue!r}, not {link.queue!r}"
    said = str(link.priority)
    stored = new.roles.priorities.turned(int(said)) if said.removeprefix("-").isdecimal() else None
    if stored is not None and (right := outside(role.priority_range, stored)):
        return f"{role.name}: priority={link.priority}: give {right}"
    return None


def _schedules(new: _Release, connection: Connection) -> Iterator[Misfit]:
    for row in connection.execute(SCHEDULES).mappings():
        job = PlannedJob(*(row[name] for name in PlannedJob.__slots__))
        if job.target in new.others or is_built_in(job.target):
            continue
        declared = new.roles.get(job.target)
        if declared is None:
            yield Misfit(
                "schedule gone", job.name, f"the schedule {job.name!r} enqueues {job.target!r}, which is gone",
                f"change it, or `celeriac schedules toggle {argument(job.name)} off`",
            )  # fmt: skip
        elif problem := _is_refused(new, declared, job):
            yield Misfit(
                "schedule refused", job.name, f"the schedule {job.name!r} would be refused: {problem}",
                f"accept what was right before, or change it: `celeriac schedules edit {argument(job.name)}`",
            )  # fmt: skip


def _is_refused(new: _Release, declared: Declared, job: PlannedJob) -> str | None:
    """Return why the task of an instant would be refused, which beat builds in the same way; None if it would not."""
    try:
        task_of(lambda _: (declared.role, declared.signature), new.limit, job, "a check")
    except (EnqueueRefused, ConfigurationError) as error:
        return str(error).removesuffix("; nothing was enqueued")
    return None


def _does_not_fit(new: _Release, declared: Declared, shape: Any, role: str) -> str | None:
    """Return why a stored call fits no more: it cannot be bound, or what it passes by place would get another name."""
    try:
        declared.signature.bind((None,) * shape.positional, dict.fromkeys(shape.names))
    except BadArguments as error:
        return str(error).removesuffix("; nothing was enqueued")
    names, former = declared.signature.names, new.parameters.get(role) or ()
    for place, parameter in enumerate(former[: shape.positional]):
        name = parameter["name"]
        if name in names and names.index(name) != place:
            return f"{declared.role.name}: its argument {place + 1} was {name!r}, and would be {names[place]!r} now"
    return None


def _renamed(roles: Roles, row: Any) -> str | None:
    """Return a role that only this code knows and that takes the same parameters as the stored one."""
    new = [one for one in roles.own() if one.role.name not in row.known and not is_built_in(one.role.name)]
    same = [one.role.name for one in new if row.parameters and one.signature.describe() == row.parameters]
    close = get_close_matches(row.role, same, n=1, cutoff=0.0)
    return close[0] if close else None


def _misfit(row: Any, kind: str, problem: str, cure: str, some: Any = None) -> Misfit:
    """Return a misfit. `some`: the role's tasks that are concerned, if not all are."""
    tasks = min(row.n, MOST) if some is None else some.n
    return Misfit(kind, row.role, problem, cure, tasks, row.n > MOST, None if some is None else some.first)


def _many(n: int, row: Any = None) -> str:
    """Return how many tasks these are, in words. `row`: that of the role, if they are only some of its tasks."""
    more = n > MOST or (row is not None and row.n > MOST)
    return f"{min(n, MOST):,}{'+' if more else ''} unfinished task{'' if n == 1 and not more else 's'}"
