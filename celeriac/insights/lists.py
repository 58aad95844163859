"""Lists of tasks: pages along an index, newest first, whatever the filter.

A page looks at a bounded number of rows. Where the filter meets few of them it may be short, or empty, and `next` still
leads on: only a page without `next` is the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.store.states import ALL, CRAWLS, QUEUES, WAITS_FOR_TIME, statuses_of

MOST_ROWS, MOST_OFFSET = 1_000, 10_000

#: Seconds a filter may go back.
OLDEST = 1e9

#: What a status may be called.
WORDS = tuple(dict.fromkeys((*ALL, *CRAWLS, *QUEUES)))

#: Rows a page looks at in search of those the filter means.
LOOKS_AT = 2_000

COLUMNS = """
    id, task_id, role, account, lock_key, unique_key, status, waits_for, priority, scheduled_for, expires_at,
    worker_id, claimed_at, started_at, deadline_at, last_heartbeat_at, cancel_requested_at, completed_at, progress,
    error_message, retry_count, max_retries, tries, max_tries, losses, timeout, parent_id, enqueued_by, created_at,
    updated_at"""

FILTER = """
    (CAST(:statuses AS text[]) IS NULL OR status = ANY(CAST(:statuses AS text[])))
    AND (CAST(:role AS text) IS NULL OR role = :role)
    AND (CAST(:account AS text) IS NULL OR account = :account)
    AND (CAST(:lock_key AS text) IS NULL OR lock_key = :lock_key)
    AND (CAST(:unique_key AS text) IS NULL OR unique_key = :unique_key)
    AND (CAST(:worker_id AS text) IS NULL OR worker_id = :worker_id)
    AND (CAST(:waits_for AS text) IS NULL OR waits_for = :waits_for OR :waits_for = 'nothing' AND waits_for IS NULL)
    AND (CAST(:older_than AS double precision) IS NULL
        OR created_at < statement_timestamp() - :older_than * interval '1 second')"""

# Where rows of these statuses are found in the order of their ids (`place` is the id), or of their completion.
# INVARIANT of `names`: one descent per role the index has, or the one that is asked for.
_WALK = """
WITH RECURSIVE names AS (
    (SELECT role FROM worker_tasks WHERE {part} AND role >= coalesce(CAST(:role AS text), '') ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM names, LATERAL (
        SELECT role FROM worker_tasks WHERE {part} AND role > names.role AND CAST(:role AS text) IS NULL
        ORDER BY role LIMIT 1) AS next
), walk AS (
    SELECT found.* FROM names, LATERAL (
        SELECT *, {place} AS place FROM worker_tasks
        WHERE {part} AND role = names.role AND {before} ORDER BY {order} LIMIT :looks_at
    ) AS found
    WHERE names.role = coalesce(CAST(:role AS text), names.role)
    ORDER BY {order} LIMIT :looks_at
)"""

_AFTER = "coalesce(CAST(CAST(:after AS text) AS bigint), 9223372036854775807)"

_ALL_BY_ID = f"""
WITH walk AS (
    SELECT *, CAST(id AS text) AS place FROM worker_tasks WHERE id < {_AFTER} ORDER BY id DESC LIMIT :looks_at
)"""

_BEFORE_TIME = """(completed_at, id) < (
    coalesce(CAST(split_part(CAST(:after AS text), ' ', 1) AS timestamptz), 'infinity'),
    coalesce(CAST(split_part(CAST(:after AS text), ' ', 2) AS bigint), 0))"""

_PLACE_IN_TIME = """(to_char(completed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || ' ' || id)"""


def _by_id(part: str) -> str:
    """By -id, which the partial indexes have and the primary key has not: along that, a few rows may lie far apart."""
    return _WALK.format(part=part, place="CAST(id AS text)", before=f"-id > -{_AFTER}", order="-id")


_WALKS = {
    ("pending",): _by_id("status = 'pending'"),
    ("claimed", "running"): _by_id("status IN ('claimed', 'running')"),
    ("failed",): _by_id("status = 'failed' AND status IN ('failed', 'cancelled')"),
    ("cancelled",): _by_id("status = 'cancelled' AND status IN ('failed', 'cancelled')"),
    ("completed",): _WALK.format(
        part="status IN ('completed', 'failed', 'cancelled')",
        place=_PLACE_IN_TIME,
        before=_BEFORE_TIME,
        order="completed_at DESC, id DESC",
    ),
    ALL: _ALL_BY_ID,
}

_PAGE = "SELECT {columns}, place FROM walk WHERE {filter} LIMIT :most OFFSET :offset"
_END = "SELECT place FROM walk OFFSET :looks_at - 1 LIMIT 1"

PAGES = {part: text(walk + _PAGE.format(columns=COLUMNS, filter=FILTER)) for part, walk in _WALKS.items()}
ENDS = {part: text(walk + _END) for part, walk in _WALKS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a list or a bulk means; what is None does not matter. `older_than`: seconds since it was enqueued.
    `waits_for`: time, lock, or nothing."""

    statuses: Sequence[str] | None = None
    role: str | None = None
    account: str | None = None
    lock_key: str | None = None
    unique_key: str | None = None
    worker_id: str | None = None
    waits_for: str | None = None
    older_than: float | None = None

    @classmethod
    def of(cls, words: Sequence[str], *, waits_for: str | None = None, **conditions: Any) -> Filter:
        """`words` for statuses; `delayed` alone is what waits for its time. Raises BadValue for what is none."""
        for word in words:
            if not statuses_of(word):
                raise BadValue(f"status={word!r}: give some of {', '.join(WORDS)}")
        statuses = tuple(dict.fromkeys(status for word in words for status in statuses_of(word)))
        waits_for = WAITS_FOR_TIME if waits_for is None and tuple(words) == ("delayed",) else waits_for
        return cls(statuses=statuses or None, waits_for=waits_for, **conditions)


@dataclass(frozen=True, slots=True)
class Page:
    """`next`: give it as `after` for what follows."""

    items: list[dict[str, Any]]
    next: str | None


def list_tasks(
    connection: Connection, wanted: Filter, *, limit: int = 100, after: str | None = None, offset: int = 0
) -> Page:
    """Newest first: by id, or by completion where only completed tasks are wanted. Raises BadValue."""
    part = _part(wanted.statuses)
    _refuse(part, limit, after, offset)
    _refuse_age(wanted.older_than)
    given = asdict(wanted) | {"statuses": list(wanted.statuses) if wanted.statuses else None}
    given |= {"after": after, "most": limit + 1, "offset": offset}
    rows, end = [], None
    for looks_at in _looks(offset + limit + 1, _picks(wanted, part)):
        found = connection.execute(PAGES[part], given | {"looks_at": looks_at}).mappings()
        rows = [dict(row) for row in found]
        if len(rows) > limit:
            return Page(_items(rows[:limit]), rows[limit - 1]["place"])
        end = connection.execute(ENDS[part], given | {"looks_at": looks_at}).scalar_one_or_none()
        if end is None:
            break
    return Page(_items(rows), end)


def _looks(rows: int, picks: bool) -> Sequence[int]:
    """How many rows to look at for so many: first as if every other one were meant, which is usual, then further."""
    if not picks:
        return (rows,)
    return (2 * rows, LOOKS_AT) if 2 * rows < LOOKS_AT else (max(rows, LOOKS_AT),)


def matching(connection: Connection, wanted: Filter, *, most: int) -> list[int]:
    """The ids of up to `most` tasks, for a bulk. Each status is walked by itself: nothing else is looked at.

    Raises BadValue.
    """
    if most < 1:
        raise BadValue(f"most={most}: give 1 or more")
    walks = (replace(wanted, statuses=statuses) for statuses in _walked_apart(wanted.statuses))
    found = (task for walk in walks for task in _ids(connection, walk, min(most, MOST_ROWS)))
    return list(dict.fromkeys(islice(found, most)))  # One may have gone from a status to the next meanwhile.


def _ids(connection: Connection, wanted: Filter, limit: int) -> Iterator[int]:
    after: str | None = None
    while True:
        page = list_tasks(connection, wanted, limit=limit, after=after)
        yield from (item["id"] for item in page.items)
        after = page.next
        if after is None:
            return


def _walked_apart(statuses: Sequence[str] | None) -> Iterator[Sequence[str] | None]:
    if statuses is None or set(statuses) == set(ALL):
        yield statuses
        return
    for part in _WALKS:
        if part != ALL and (some := [status for status in part if status in statuses]):
            yield some


def _part(statuses: Sequence[str] | None) -> tuple[str, ...]:
    """The narrowest walk that meets all of these statuses."""
    for status in statuses or ():
        if status not in ALL:
            raise BadValue(f"status={status!r}: give some of {', '.join(ALL)}")
    narrow = (part for part in _WALKS if statuses and set(statuses) <= set(part))
    return next(narrow, ALL)


def _picks(wanted: Filter, part: tuple[str, ...]) -> bool:
    """Whether the walk may meet rows that are not meant."""
    told = {name for name, value in asdict(wanted).items() if value is not None}
    exact = len(part) == 1 and part != ("completed",)
    return bool(told - {"statuses", "role"}) or not (exact or (part == ALL and not told))


def _refuse(part: tuple[str, ...], limit: int, after: str | None, offset: int) -> None:
    if not 1 <= limit <= MOST_ROWS:
        raise BadValue(f"limit={limit}: give 1 to {MOST_ROWS:,}")
    if not 0 <= offset <= MOST_OFFSET:
        raise BadValue(f"offset={offset}: give 0 to {MOST_OFFSET:,}, or follow `next` from page to page")
    if after is not None and not _is_place(part, after):
        raise BadValue(f"after={after!r:.100}: give the `next` of the page before, with the same filter")


def _refuse_age(older_than: float | None) -> None:
    if older_than is not None and not 0 <= older_than <= OLDEST:
        raise BadValue(f"older_than={older_than:g}: give 0 to {OLDEST:,.0f} seconds")


def _is_place(part: tuple[str, ...], after: str) -> bool:
    at, _, last = after.rpartition(" ")
    try:
        if at:
            datetime.fromisoformat(at)
        return bool(at) == (part == ("completed",)) and last.isascii() and last.isdigit() and int(last) < 2**63
    except ValueError:
        return False


def _items(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "place"} for row in rows]
