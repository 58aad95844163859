"""Workflows: those under way; and one with its progress, its shape, and its parts page by page.

The shape has one node for all parts of a role that hold back the same body, whether two or 100,000. It is counted along
the index of the workflow, and no headers, arguments or results are read for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.errors import BadValue, Unknown
from celeriac.insights.tasks.lists import Filter, Page, looks, refuse
from celeriac.insights.tasks.pages import AFTER, COLUMNS, SILENT, TOKENS, UNFINISHED_OF_WALK
from celeriac.insights.tasks.tasks import find
from celeriac.store.states import ALL, CANCELLED, CLAIMED, COMPLETED, FAILED, FINISHED, PENDING, RUNNING, UNFINISHED

#: The most nodes that are returned: those that began first.
MOST_NODES = 200

# A row that `celeriac.fall_out` adds when a part ends without its worker is not a part. Headers may be long, so they
# are read last, and only of rows with neither arguments nor a place.
_FALLS_OUT = """(parent_id IS NOT NULL AND place IS NULL AND args = '[]' AND kwargs = '{}'
        AND headers #> '{canvas,fall_out}' IS NOT NULL)"""

_AWAITS = "CAST({}headers -> 'canvas' ->> 'awaits' AS uuid)"

# The first row is that of the whole workflow. Among unfinished parts `HELD` finds the claimed and the running ones.
SHAPE = text(f"""
WITH parts AS MATERIALIZED (
    SELECT role, barrier, 'pending' AS status, count(*) AS n, min(id) AS first, min(parent_id) AS parent,
        min(created_at) AS created, min(started_at) AS started, CAST(NULL AS timestamptz) AS completed
    FROM celeriac.tasks WHERE workflow = :workflow AND NOT {_FALLS_OUT} GROUP BY role, barrier
    UNION ALL
    SELECT role, barrier, status, CAST(sum(n) AS bigint), min(first), min(parent), min(created), min(started),
        max(completed)
    FROM celeriac.shape_of(:workflow) GROUP BY role, barrier, status
), by_status AS (
    SELECT status, CAST(sum(n) AS bigint) AS n, min(created) AS created, min(started) AS started,
        max(completed) AS completed, array_agg(DISTINCT role) AS roles
    FROM parts GROUP BY status
), nodes AS (
    SELECT role, barrier, jsonb_object_agg(status, n) AS counts, min(first) AS first, min(parent) AS parent
    FROM parts GROUP BY role, barrier ORDER BY min(first) LIMIT :most
)
SELECT NULL AS role, NULL AS barrier, coalesce(jsonb_object_agg(status, n), '{{}}') AS counts, NULL AS first,
    NULL AS parent, min(created) AS created_at, min(started) AS started_at, max(completed) AS completed_at,
    (SELECT roles FROM by_status WHERE status = 'pending') AS roles,
    (SELECT count(*) FROM (SELECT DISTINCT role, barrier FROM parts) AS every) AS nodes
FROM by_status
UNION ALL
SELECT role, CAST(barrier AS text), counts, first, parent, NULL, NULL, NULL, NULL, NULL FROM nodes
""")

# The tasks in tickets of these roles: no more than their windows.
HELD = text("""
SELECT t.role, CAST(t.barrier AS text) AS barrier,
    CASE WHEN k.worker_id IS NULL THEN 'claimed' ELSE 'running' END AS status, count(*) AS n,
    min(k.started_at) AS started_at
FROM celeriac.tickets k, unnest(k.ids) AS held (id), LATERAL (
    SELECT role, barrier FROM celeriac.tasks WHERE id = held.id AND workflow = :workflow LIMIT 1) AS t
WHERE k.role = ANY (CAST(:roles AS text[])) GROUP BY 1, 2, 3
""")

# For each of these barriers, one task that waits there or waited.
BODIES = text(f"""
SELECT CAST(wanted.barrier AS text) AS barrier, body.id, body.role, CAST(body.goal AS text) AS goal
FROM unnest(CAST(:barriers AS uuid[])) AS wanted (barrier), LATERAL (
    (SELECT t.id, t.role, t.barrier AS goal FROM celeriac.tasks t WHERE {_AWAITS.format("t.")} = wanted.barrier
        AND t.headers -> 'canvas' ->> 'awaits' IS NOT NULL AND NOT {_FALLS_OUT} LIMIT 1)
    UNION ALL
    (SELECT f.id, f.role, f.barrier FROM (
        SELECT id, day FROM celeriac.ended WHERE awaits = wanted.barrier LIMIT 1
    ) AS e, LATERAL celeriac.finished_on(ARRAY[e.id], ARRAY[e.day]) AS f LIMIT 1)
    LIMIT 1) AS body
""")

HAS_PARTS = text("""
SELECT EXISTS (SELECT FROM celeriac.tasks WHERE workflow = :workflow)
    OR EXISTS (SELECT FROM celeriac.ended WHERE workflow = :workflow)
""")

# The node of each of these parts.
PARENTS = text("""
SELECT id, role, CAST(barrier AS text) AS barrier FROM celeriac.tasks
WHERE id = ANY (CAST(:ids AS bigint[])) AND workflow = :workflow
UNION ALL
SELECT id, role, CAST(barrier AS text) FROM celeriac.history_with(CAST(:ids AS bigint[]))
WHERE workflow = :workflow
""")

# BETWEEN: with "= :workflow" Postgres could walk an index by id alone, past all other tasks.
_WALK = f"""
WITH walk AS MATERIALIZED (
    SELECT * FROM (
        (SELECT id, CAST(NULL AS date) AS day, barrier, place, {_AWAITS.format("")} AS awaits,
                {_FALLS_OUT} AS falls_out
            FROM celeriac.tasks WHERE workflow BETWEEN :workflow AND :workflow
                AND (workflow, id) < (:workflow, {AFTER}) ORDER BY workflow DESC, id DESC LIMIT :looks_at)
        UNION ALL
        (SELECT id, day, barrier, NULL, awaits, false
            FROM celeriac.ended WHERE workflow BETWEEN :workflow AND :workflow
                AND (workflow, id) < (:workflow, {AFTER}) ORDER BY workflow DESC, id DESC LIMIT :looks_at)
    ) AS either ORDER BY id DESC LIMIT :looks_at
)"""

PARTS = text(f"""{_WALK}{TOKENS}
SELECT id, task_id, role, account, status, waits_for, CAST(barrier AS text) AS barrier, place,
    CAST(awaits AS text) AS awaits, parent_id, worker_id, cancel_requested_at, created_at, started_at, completed_at,
    error_message
FROM (
    SELECT task.*, walk.barrier, walk.place, walk.awaits
    FROM walk, LATERAL ({UNFINISHED_OF_WALK} OFFSET 0) AS task WHERE walk.day IS NULL AND NOT walk.falls_out
    UNION ALL
    SELECT {COLUMNS}, args, kwargs, barrier, place, {_AWAITS.format("")} FROM celeriac.finished_on(
        ARRAY(SELECT id FROM walk WHERE day IS NOT NULL), ARRAY(SELECT day FROM walk WHERE day IS NOT NULL))
) AS page
WHERE (CAST(:statuses AS text[]) IS NULL OR status = ANY (CAST(:statuses AS text[])))
    AND (CAST(:role AS text) IS NULL OR role = :role)
    AND (CAST(:barrier AS uuid) IS NULL OR barrier = :barrier)
    AND (CAST(:waits_for AS text) IS NULL OR waits_for = :waits_for)
    AND {SILENT}
ORDER BY id DESC LIMIT :most
""")

END = text(f"{_WALK} SELECT CAST(id AS text) FROM walk OFFSET :looks_at - 1 LIMIT 1")

#: Most parts of a workflow that are counted.
COUNTED = 1_000

# INVARIANT: a descent of the index for each workflow returned, then at most COUNTED of its parts. BETWEEN: with "="
# Postgres could walk an index by id alone, past all other tasks.
UNDER_WAY = text("""
WITH RECURSIVE walk AS (
    (SELECT workflow FROM celeriac.tasks WHERE workflow > CAST(:after AS text) ORDER BY workflow LIMIT 1)
    UNION ALL
    SELECT next.workflow FROM walk, LATERAL (
        SELECT workflow FROM celeriac.tasks WHERE workflow > walk.workflow ORDER BY workflow LIMIT 1) AS next
), page AS MATERIALIZED (SELECT workflow FROM walk LIMIT CAST(:most AS integer))
SELECT page.workflow AS id, first.role, first.created_at,
    (SELECT count(*) FROM (
        SELECT FROM celeriac.tasks WHERE workflow BETWEEN page.workflow AND page.workflow LIMIT :counted) AS told
    ) AS unfinished,
    (SELECT count(*) FROM (
        SELECT FROM celeriac.ended WHERE workflow BETWEEN page.workflow AND page.workflow LIMIT :counted) AS told
    ) AS finished
FROM page, LATERAL (
    SELECT role, created_at FROM celeriac.tasks WHERE workflow BETWEEN page.workflow AND page.workflow
    ORDER BY workflow, id LIMIT 1) AS first
ORDER BY page.workflow
""")


@dataclass(frozen=True, slots=True)
class Node:
    """All parts of a role that hold back the same body. `barrier`: the barrier that they deliver to or hold shut, None
    if neither. `counts`: by status. `body`: the id of a task that waits for them.
    """

    role: str
    barrier: str | None
    counts: dict[str, int]
    body: int | None


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between nodes, by their places in the list. `kind`: `members` (the target waits for all) or `link`."""

    source: int
    target: int
    kind: str


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow. `state`: running while a part is unfinished; then cancelled or failed if any part was, else
    completed.

    `done` of `total` parts are finished: a group's members count from the beginning, a chain's links once the one
    before has ended, and successes as long as they are kept. `left_out`: nodes that are not among `nodes`.
    """

    id: str
    state: str
    done: int
    total: int
    counts: dict[str, int]
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    nodes: list[Node]
    edges: list[Edge]
    left_out: int


_Key = tuple[str, str | None]
_Bodies = Mapping[str | None, Row[Any]]


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A running workflow. `role`, `created_at`: its first unfinished part's. A count of `COUNTED` is a lower bound."""

    id: str
    role: str
    created_at: datetime
    unfinished: int
    finished: int


def workflow_of(connection: Connection, identifier: int | str) -> str:
    """Return the workflow's id, given that id or a part's row id or task id. Raises Unknown.

    The id of a task which belongs to no workflow may still be a workflow's id.
    """
    task = find(connection, identifier)
    if task is not None and task["workflow"] not in (None, identifier) and task["task_id"] != identifier:
        _refuse_another(connection, str(identifier))
    if task is not None and task["workflow"] is not None:
        return str(task["workflow"])
    named = str(identifier).removeprefix("task_id=")
    label = named if task is None else str(task["task_id"])
    if not connection.execute(HAS_PARTS, {"workflow": label}).scalar_one():
        none = f"there is no workflow {identifier!r}; what has finished may be pruned"
        raise Unknown(none if task is None else f"task {identifier!r} belongs to no workflow")
    return label


def _refuse_another(connection: Connection, number: str) -> None:
    if number.isdigit() and connection.execute(HAS_PARTS, {"workflow": number}).scalar_one():
        raise BadValue(
            f"workflow={number}: this is a workflow's id and the number of task {number}, which is part of another; "
            f"write task_id={number} or id={number}"
        )


def workflow(connection: Connection, identifier: int | str) -> Workflow:
    """Return the whole workflow. `identifier`: as for `workflow_of`. Raises Unknown."""
    label = workflow_of(connection, identifier)
    whole, *rows = connection.execute(SHAPE, {"workflow": label, "most": MOST_NODES}).all()
    if not whole.counts:
        raise Unknown(f"there is no workflow {identifier!r}; what has finished may be pruned")
    held = connection.execute(HELD, {"workflow": label, "roles": whole.roles or []}).all()
    counts = _counts(whole.counts, held)
    bodies = _bodies(connection, (row.barrier for row in rows))
    nodes = {(row.role, row.barrier): _node(row, held, bodies) for row in rows}
    done, total = sum(counts[status] for status in FINISHED), sum(counts.values())
    return Workflow(
        id=label, state=_state(counts), done=done, total=total, counts=counts, created_at=whole.created_at,
        started_at=min((at for at in (whole.started_at, *(row.started_at for row in held)) if at), default=None),
        completed_at=whole.completed_at if done == total else None,
        nodes=list(nodes.values()), edges=_edges(connection, label, rows, list(nodes), bodies),
        left_out=whole.nodes - len(nodes),
    )  # fmt: skip


def workflow_tasks(
    connection: Connection, identifier: int | str, *, statuses: Sequence[str] | None = None, role: str | None = None,
    barrier: str | None = None, limit: int = 100, after: str | None = None,
) -> Page:  # fmt: skip
    """Return a workflow's parts, newest first, in pages as of `list_tasks`. `role` and `barrier`: those of a node;
    `statuses`: any of the words for them.

    Each part has what it waits for, the barrier it delivers to or holds back with the `body` that waits there, and in
    `awaits` the barrier it waits at itself. Raises Unknown, BadValue.
    """
    refuse(ALL, limit, after)
    wanted = Filter.of(statuses or ())
    asked: dict[str, Any] = {"workflow": workflow_of(connection, identifier), "role": role, "barrier": barrier}
    asked |= {"statuses": list(wanted.statuses) if wanted.statuses else None, "waits_for": wanted.waits_for}
    asked |= {"silent": wanted.silent, "after": after, "most": limit + 1}
    rows, end = [], None
    for looks_at in looks(limit + 1, picks=bool(statuses or role or barrier)):
        rows = [dict(row) for row in connection.execute(PARTS, asked | {"looks_at": looks_at}).mappings()]
        if len(rows) > limit:
            rows, end = rows[:limit], str(rows[limit - 1]["id"])
            break
        end = connection.execute(END, asked | {"looks_at": looks_at}).scalar_one_or_none()
        if end is None:
            break
    bodies = _bodies(connection, (row["barrier"] for row in rows))
    return Page([row | {"body": _id(bodies.get(row["barrier"]))} for row in rows], end)


def _counts(unheld: Mapping[str, int], held: Iterable[Row[Any]]) -> dict[str, int]:
    """Return counts by status. Held tasks were counted as pending, too, and may have ended meanwhile."""
    counts = dict.fromkeys(ALL, 0) | dict(unheld)
    for row in held:
        counts[row.status] += row.n
    return counts | {PENDING: max(0, counts[PENDING] - counts[CLAIMED] - counts[RUNNING])}


def _state(counts: Mapping[str, int]) -> str:
    """Return the workflow's state. Cancelled precedes failed: a cancelled workflow has failed parts, not vice versa."""
    if any(counts[status] for status in UNFINISHED):
        return RUNNING
    return next(status for status in (CANCELLED, FAILED, COMPLETED) if counts[status])


def _node(row: Row[Any], held: Sequence[Row[Any]], bodies: _Bodies) -> Node:
    mine = [one for one in held if (one.role, one.barrier) == (row.role, row.barrier)]
    counts = {status: n for status, n in _counts(row.counts, mine).items() if n}
    return Node(row.role, row.barrier, counts, _id(bodies.get(row.barrier)))


def _id(body: Row[Any] | None) -> int | None:
    return None if body is None else body.id


def _bodies(connection: Connection, barriers: Iterable[str | None]) -> _Bodies:
    wanted = sorted({barrier for barrier in barriers if barrier is not None})
    rows = connection.execute(BODIES, {"barriers": wanted}).all() if wanted else []
    return {row.barrier: row for row in rows}


def _edges(
    connection: Connection, label: str, rows: Sequence[Row[Any]], keys: list[_Key], bodies: _Bodies
) -> list[Edge]:
    """Return the edges. The parts of a node have as many parents, so the first one's parent stands for all."""
    parents = sorted({row.parent for row in rows if row.parent is not None})
    parts = connection.execute(PARENTS, {"ids": parents, "workflow": label}).all() if parents else []
    links: dict[int, _Key] = {row.id: (row.role, row.barrier) for row in parts}
    pairs: list[tuple[_Key | None, _Key | None, str]] = []
    for row in rows:
        body = bodies.get(row.barrier)
        pairs.append((links.get(row.parent), (row.role, row.barrier), "link"))
        pairs.append(((row.role, row.barrier), None if body is None else (body.role, body.goal), "members"))
    at = {key: n for n, key in enumerate(keys)}
    return [Edge(at[a], at[b], kind) for a, b, kind in pairs if a != b and a in at and b in at]


def workflows_under_way(connection: Connection, *, limit: int = 100, after: str | None = None) -> list[UnderWay]:
    """Return workflows by id, those after `after`. One whose last part ends meanwhile is left out."""
    wanted = {"after": after or "", "most": limit, "counted": COUNTED}
    return [UnderWay(*row) for row in connection.execute(UNDER_WAY, wanted)]
