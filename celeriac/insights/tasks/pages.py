"""The statements of lists: a walk along an index finds a bounded number of tasks, then each is looked up by its id."""

from __future__ import annotations

from sqlalchemy import TextClause, text

from celeriac.store.states import ALL

COLUMNS = """
    id, task_id, role, account, lock_key, unique_key, status, waits_for, priority, scheduled_for, expires_at,
    worker_id, claimed_at, started_at, last_heartbeat_at, cancel_requested_at, completed_at, progress,
    error_message, retry_count, max_retries, tries, max_rounds, losses, timeout, parent_id, enqueued_by, created_at,
    updated_at, queue"""

_AT = "coalesce(CAST(:until AS timestamptz), statement_timestamp())"
# A running task matches if its worker is silent, by the rule of `celeriac.stale`; any other task matches.
SILENT = """(CAST(:silent AS boolean) IS NULL OR status <> 'running'
        OR greatest(last_heartbeat_at, celeriac.leases_since())
            < statement_timestamp() - interval '1 second' * coalesce((
                SELECT CAST(r.definition ->> 'stale_after' AS double precision) FROM celeriac.roles r
                WHERE r.role = page.role), 600))"""

# The id of a tick's task is the schedule's name, @ and the instant; no other task can have such an id.
OF_SCHEDULE = """(CAST(:schedule AS text) IS NULL
        OR starts_with(task_id, :schedule || '@') AND strpos(substr(task_id, length(:schedule) + 2), '@') = 0
        AND celeriac.is_instants(task_id))"""

FILTER = f"""
    (CAST(:statuses AS text[]) IS NULL OR status = ANY(CAST(:statuses AS text[])))
    AND (CAST(:role AS text) IS NULL OR role = :role)
    AND (CAST(:queue AS text) IS NULL OR :queue = coalesce(queue, (
        SELECT r.definition ->> 'queue' FROM celeriac.roles r WHERE r.role = page.role), role))
    AND (CAST(:account AS text) IS NULL OR account = :account)
    AND (CAST(:lock_key AS text) IS NULL OR lock_key = :lock_key)
    AND (CAST(:unique_key AS text) IS NULL OR unique_key = :unique_key)
    AND (CAST(:worker_id AS text) IS NULL OR worker_id = :worker_id)
    AND (CAST(:waits_for AS text) IS NULL OR waits_for = :waits_for OR :waits_for = 'nothing' AND waits_for IS NULL)
    AND (CAST(:older_than AS double precision) IS NULL
        OR created_at < {_AT} - :older_than * interval '1 second')
    AND (CAST(:newer_than AS double precision) IS NULL
        OR created_at >= {_AT} - :newer_than * interval '1 second')
    AND (CAST(:lowest AS integer) IS NULL OR priority >= :lowest)
    AND (CAST(:highest AS integer) IS NULL OR priority <= :highest)
    AND {OF_SCHEDULE}
    AND (CAST(:error AS text) IS NULL OR strpos(lower(error_message), lower(:error)) > 0)
    AND (CAST(:upto AS bigint) IS NULL OR id <= :upto)
    AND (CAST(:until AS timestamptz) IS NULL OR completed_at IS NULL OR completed_at <= :until)
    AND (CAST(:arguments AS jsonb) IS NULL OR NOT EXISTS (
        SELECT FROM jsonb_each(CAST(:arguments AS jsonb)) AS wanted (name, value)
        WHERE coalesce(page.kwargs -> wanted.name, page.args -> (
            SELECT CAST(handler.place AS integer) - 1
            FROM celeriac.roles r, jsonb_array_elements(r.parameters) WITH ORDINALITY AS handler (parameter, place)
            WHERE r.role = page.role AND handler.parameter ->> 'name' = wanted.name
                AND left(coalesce(handler.parameter ->> 'kind', 'POSITIONAL'), 10) = 'POSITIONAL'
        )) IS DISTINCT FROM wanted.value))
    AND {SILENT}"""

AFTER = "coalesce(CAST(CAST(:after AS text) AS bigint), 9223372036854775807)"

# INVARIANT of `names`: one descent for each role in the index, or only for the requested role.
_PENDING = f"""
WITH RECURSIVE names AS (
    (SELECT role FROM celeriac.tasks WHERE role >= coalesce(CAST(:role AS text), '') ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM names, LATERAL (
        SELECT role FROM celeriac.tasks WHERE role > names.role AND CAST(:role AS text) IS NULL
        ORDER BY role LIMIT 1) AS next
), walk AS MATERIALIZED (
    SELECT found.id, CAST(NULL AS date) AS day, CAST(found.id AS text) AS place FROM names, LATERAL (
        SELECT id FROM celeriac.tasks WHERE role = names.role AND -id > -{AFTER} ORDER BY -id LIMIT :looks_at
    ) AS found
    WHERE names.role = coalesce(CAST(:role AS text), names.role)
    ORDER BY -id LIMIT :looks_at
)"""

_HELD = f"""
WITH walk AS MATERIALIZED (
    SELECT id, CAST(NULL AS date) AS day, CAST(id AS text) AS place FROM celeriac.tickets k, unnest(k.ids) AS held (id)
    WHERE (CAST(:role AS text) IS NULL OR k.role = ANY (celeriac.lanes_of(:role))) AND id < {AFTER}
    ORDER BY id DESC LIMIT :looks_at
)"""

_ALL_BY_ID = f"""
WITH walk AS MATERIALIZED (
    SELECT id, day, CAST(id AS text) AS place FROM (
        (SELECT id, CAST(NULL AS date) AS day FROM celeriac.tasks WHERE id < {AFTER} ORDER BY id DESC LIMIT :looks_at)
        UNION ALL
        (SELECT id, day FROM celeriac.ended_below({AFTER}, CAST(:looks_at AS integer)))
    ) AS either ORDER BY id DESC LIMIT :looks_at
)"""

_COMPLETED = """
WITH walk AS MATERIALIZED (
    SELECT id, CAST(completed_at AT TIME ZONE 'UTC' AS date) AS day, completed_at,
        to_char(completed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || ' ' || id AS place
    FROM celeriac.ended_before(:role,
        coalesce(CAST(split_part(CAST(:after AS text), ' ', 1) AS timestamptz), 'infinity'),
        coalesce(CAST(split_part(CAST(:after AS text), ' ', 2) AS bigint), 0), CAST(:looks_at AS integer))
    ORDER BY completed_at DESC, id DESC LIMIT :looks_at
)"""


def _badly(status: str) -> str:
    """Return the walk over tasks that ended badly, by -id, the order of this index, without reading days of history."""
    return f"""
WITH RECURSIVE names AS (
    (SELECT role FROM celeriac.ended WHERE status = '{status}' AND role >= coalesce(CAST(:role AS text), '')
        ORDER BY status, role LIMIT 1)
    UNION ALL
    SELECT next.role FROM names, LATERAL (
        SELECT role FROM celeriac.ended WHERE status = '{status}' AND role > names.role AND CAST(:role AS text) IS NULL
        ORDER BY status, role LIMIT 1) AS next
), walk AS MATERIALIZED (
    SELECT id, day, completed_at, CAST(id AS text) AS place FROM (
        (SELECT found.* FROM names, LATERAL (
            SELECT id, day, completed_at FROM celeriac.ended
            WHERE status = '{status}' AND role = names.role AND -id > -{AFTER} ORDER BY status, role, -id
            LIMIT :looks_at) AS found
        WHERE names.role = coalesce(CAST(:role AS text), names.role)
        ORDER BY -id LIMIT :looks_at)
        UNION ALL
        SELECT id, day, completed_at
        FROM celeriac.badly_unlisted('{status}', :role, {AFTER}, CAST(:looks_at AS integer))
    ) AS either ORDER BY -id LIMIT :looks_at
)"""


WALKS = {
    ("pending",): _PENDING,
    ("claimed", "running"): _HELD,
    ("failed",): _badly("failed"),
    ("cancelled",): _badly("cancelled"),
    ("completed",): _COMPLETED,
    ALL: _ALL_BY_ID,
}

# Each task's ticket: one scan of the tickets, of which there are few, instead of one for each task.
TOKENS = """, held AS MATERIALIZED (
    SELECT coalesce(jsonb_object_agg(i, k.token), '{}') AS tokens FROM celeriac.tickets k, unnest(k.ids) AS i
    WHERE (CAST(:role AS text) IS NULL OR k.role = ANY (celeriac.lanes_of(:role)))
        AND i BETWEEN (SELECT min(id) FROM walk) AND (SELECT max(id) FROM walk)
)"""

# The same as `celeriac.unfinished`, for one id.
UNFINISHED_OF_WALK = """
    SELECT t.id, t.task_id, t.role, t.account, t.lock_key, t.unique_key,
        CASE WHEN k.token IS NULL THEN 'pending' WHEN k.worker_id IS NULL THEN 'claimed' ELSE 'running' END AS status,
        CASE WHEN k.token IS NULL THEN coalesce(
            (SELECT 'time' FROM celeriac.later l
                WHERE l.role = celeriac.lane(t.role, t.queue) AND l.account = t.account
                    AND l.due_at = t.scheduled_for AND l.id = t.id),
            (SELECT 'lock' FROM celeriac.behind b WHERE b.lock_key = t.lock_key AND b.priority = t.priority
                AND b.due_at = t.scheduled_for AND b.id = t.id),
            (SELECT 'account' FROM celeriac.parked p WHERE p.account = t.account
                AND p.role = celeriac.lane(t.role, t.queue) AND p.priority = t.priority
                AND p.due_at = t.scheduled_for AND p.id = t.id),
            (SELECT 'members' FROM celeriac.barriers b WHERE b.id = t.id)
        ) END AS waits_for,
        t.priority, t.scheduled_for, t.expires_at, k.worker_id, k.claimed_at,
        coalesce(k.started_at, t.started_at) AS started_at, k.heartbeat_at AS last_heartbeat_at, t.cancel_requested_at,
        CAST(NULL AS timestamptz) AS completed_at, t.progress, t.error_message, t.retry_count, t.max_retries, t.tries,
        t.max_rounds, t.losses, t.timeout, t.parent_id, t.enqueued_by, t.created_at,
        greatest(t.updated_at, k.claimed_at, k.started_at) AS updated_at, t.queue, t.args, t.kwargs
    FROM celeriac.tasks t
    LEFT JOIN LATERAL (
        SELECT * FROM celeriac.tickets
        WHERE token = CAST((SELECT tokens FROM held) ->> CAST(t.id AS text) AS uuid) LIMIT 1) AS k ON true
    WHERE t.id = walk.id"""

# INVARIANT: unfinished tasks of the walk are looked up by id, row by row, whatever the planner estimates: OFFSET 0
# prevents any other join, and filtering first. Finished ones are looked up day by day.
_WAITING = (
    f"""SELECT task.*, walk.place FROM walk, LATERAL ({UNFINISHED_OF_WALK} OFFSET 0) AS task WHERE walk.day IS NULL"""
)
_OVER = f"""SELECT {COLUMNS}, args, kwargs, {{place}} FROM celeriac.finished_on(
        ARRAY(SELECT id FROM walk WHERE day IS NOT NULL), ARRAY(SELECT day FROM walk WHERE day IS NOT NULL))"""
BY_ID, BY_TIME = (
    "CAST(id AS text) AS place",
    """to_char(completed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        || ' ' || id AS place""",
)

EITHER = f"{_WAITING} UNION ALL {_OVER.format(place=BY_ID)}"

_PAGE = """
SELECT {columns}, place FROM ({task}) AS page
WHERE {filter}
ORDER BY {order} LIMIT :most OFFSET :offset
"""
_MET = """
SELECT coalesce(array_agg(id ORDER BY id DESC), '{}') FROM (
    SELECT id FROM walk
    WHERE (CAST(:upto AS bigint) IS NULL OR id <= :upto)
        AND (CAST(:until AS timestamptz) IS NULL OR completed_at <= :until)
    ORDER BY id DESC LIMIT :most) AS met
"""
_END = "SELECT place FROM walk OFFSET :looks_at - 1 LIMIT 1"

_TASK = {("pending",): _WAITING, ("claimed", "running"): _WAITING, ALL: EITHER}


def _page(part: tuple[str, ...], walk: str, columns: str) -> TextClause:
    order = "page.completed_at DESC, page.id DESC" if part == ("completed",) else "page.id DESC"
    task = _TASK.get(part) or _OVER.format(place=BY_TIME if part == ("completed",) else BY_ID)
    tokens = TOKENS if part in _TASK else ""
    return text(walk + tokens + _PAGE.format(columns=columns, task=task, filter=FILTER, order=order))


PAGES = {part: _page(part, walk, COLUMNS) for part, walk in WALKS.items()}
#: The same tasks, ids only.
IDS = {part: _page(part, walk, "id") for part, walk in WALKS.items()}
#: The same for filters of only `statuses`, `role`, `upto` and `until`: the walk applies these, so no task is looked up.
IDS_OF_WALK: dict[tuple[str, ...], TextClause] = {
    part: text(WALKS[part] + _MET) for part in (("failed",), ("cancelled",))
}
ENDS = {part: text(walk + _END) for part, walk in WALKS.items()}
