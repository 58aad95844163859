"""Lists of tasks: pages along an index, newest first, whatever the filter.

A page reads a bounded number of rows. If the filter matches few of them, the page may be short or empty and still have
a `next`: only a page without `next` is the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, TextClause, text

from celeriac.errors import BadValue
from celeriac.insights.tasks.conditions import ends
from celeriac.insights.tasks.pages import COLUMNS, ENDS, IDS, IDS_OF_WALK, PAGES, WALKS
from celeriac.insights.tasks.redaction import refuse_sensitive, without_progress
from celeriac.store.encoding import Unfit, encoded
from celeriac.store.role_names import parts_of_lane
from celeriac.store.states import ALL, RUNNING, STALE, WAITS_FOR_TIME, WORDS, statuses_of

#: Columns of a task in a list.
NAMES = tuple(COLUMNS.replace(",", " ").split())

MOST_ROWS, MOST_OFFSET = 1_000, 10_000

#: Maximum number of ids on a page of a bulk if the walk alone finds them.
MOST_MET = 10_001

#: Most seconds a filter may go back.
OLDEST = 1e9

#: Most bytes of JSON in the arguments of a filter.
LARGEST = 8_192

#: Maximum number of rows read in search of a page's matches, and of pages that a bulk reads beyond those it fills.
LOOKS_AT, VAIN = 2_000, 50

MOMENT = text("""
SELECT coalesce(pg_sequence_last_value(CAST('celeriac.tasks_id_seq' AS regclass)), 0) AS upto,
    clock_timestamp() AS until
""")

VIEWS = text("""
SELECT owner, name, filter, saved_at FROM celeriac.saved_views
WHERE owner = ANY (CAST(:owners AS text[])) ORDER BY owner = '' DESC, name
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter of a list or a bulk; None matches anything. `older_than`, `newer_than`: seconds since a task was
    enqueued. `waits_for`: time, lock, account, members, or nothing. `error`: a part of its last error.
    `upto`, `until`: only tasks as of an instant, none with a greater id, none that ended later.
    `arguments`: some of the call's, by the handler's names, whether they were passed by name or by position.
    `silent`: of running tasks only those whose worker has been silent for as long as their role's `stale_after`.
    `priority`: a range, as in `conditions.ends`. `schedule`: the tasks of this schedule's ticks.
    """

    statuses: Sequence[str] | None = None
    role: str | None = None
    account: str | None = None
    lock_key: str | None = None
    unique_key: str | None = None
    worker_id: str | None = None
    waits_for: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    error: str | None = None
    upto: int | None = None
    until: datetime | None = None
    arguments: Mapping[str, Any] | None = None
    silent: bool | None = None
    priority: str | None = None
    schedule: str | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        """Split the role's name if it is that of a lane, as in lists of roles."""
        if self.role is not None and (queue := parts_of_lane(self.role)[1]) is not None:
            object.__setattr__(self, "queue", queue)
            object.__setattr__(self, "role", parts_of_lane(self.role)[0])

    @classmethod
    def of(cls, words: Sequence[str], *, waits_for: str | None = None, **conditions: Any) -> Filter:
        """Build a filter from `words` for statuses; `delayed` also means that a task waits for its time, `stale` that
        it runs on a silent worker. Raises BadValue for an unknown word.
        """
        for word in words:
            if not statuses_of(word):
                raise BadValue(f"status={word!r}: give some of {', '.join(WORDS)}")
        statuses = tuple(dict.fromkeys(status for word in words for status in statuses_of(word)))
        waits_for = WAITS_FOR_TIME if waits_for is None and tuple(words) == ("delayed",) else waits_for
        running = {word for word in words if RUNNING in statuses_of(word)}
        return cls(statuses=statuses or None, waits_for=waits_for, silent=running == {STALE} or None, **conditions)


#: The prefix of an argument's name wherever a list can be filtered by one.
ARGUMENT = "arg."


def as_argument(value: str) -> Any:
    """Parse an argument's value as somebody typed it: JSON, or else a text."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


@dataclass(frozen=True, slots=True)
class Page:
    """A page of tasks. `next`: pass it as `after` to get what follows."""

    items: list[dict[str, Any]]
    next: str | None


def list_tasks(
    connection: Connection, wanted: Filter, *, limit: int = 100, after: str | None = None, offset: int = 0
) -> Page:
    """Return tasks, newest first: by id, or by completion if only completed tasks are requested. Raises BadValue."""
    refuse(_part(wanted.statuses), limit, after, offset)
    rows, following = _page(connection, PAGES, wanted, limit, after, offset)
    tasks = [dict(zip(NAMES, row, strict=False)) for row in rows]  # all but the place, which is the last column
    return Page(without_progress(connection, tasks), following)


def _page(
    connection: Connection, statements: Mapping[tuple[str, ...], TextClause], wanted: Filter, limit: int,
    after: str | None, offset: int = 0,
) -> tuple[Sequence[Row[Any]], str | None]:  # fmt: skip
    """Return the rows of a page, and the place where the next begins."""
    refuse_sensitive(connection, wanted.arguments or (), wanted.role)
    part, parameters = _part(wanted.statuses), _parameters(wanted, limit, after, offset)
    rows: Sequence[Row[Any]] = []
    end: str | None = None
    for looks_at in looks(offset + limit + 1, _picks(wanted, part)):
        rows = connection.execute(statements[part], parameters | {"looks_at": looks_at}).all()
        if len(rows) > limit:
            return rows[:limit], rows[limit - 1].place
        end = connection.execute(ENDS[part], parameters | {"looks_at": looks_at}).scalar_one_or_none()
        if end is None:
            break
    return rows, end


def _met(connection: Connection, wanted: Filter, limit: int, after: str | None) -> tuple[list[int], str | None]:
    """Return a page of ids alone, along a walk that covers the whole filter."""
    part = _part(wanted.statuses)
    parameters = _parameters(wanted, limit, after) | {"looks_at": limit + 1}
    ids: list[int] = connection.execute(IDS_OF_WALK[part], parameters).scalar_one()
    if len(ids) > limit:
        return ids[:limit], str(ids[limit - 1])
    return ids, connection.execute(ENDS[part], parameters).scalar_one_or_none()


def _parameters(wanted: Filter, limit: int, after: str | None, offset: int = 0) -> dict[str, Any]:
    statuses = list(wanted.statuses) if wanted.statuses else None
    return asdict(wanted) | check(wanted) | {
        "statuses": statuses, "after": after, "most": limit + 1, "offset": offset
    }  # fmt: skip


def looks(rows: int, picks: bool) -> Sequence[int]:
    """Return how many rows to read for `rows` matches: first as if every other one matched, as is usual, then more."""
    if not picks:
        return (rows,)
    return (2 * rows, LOOKS_AT) if 2 * rows < LOOKS_AT else (max(rows, LOOKS_AT),)


@dataclass(frozen=True, slots=True)
class Matching:
    """Ids of tasks. `gave_up`: too few of the rows it read matched, and it stopped reading."""

    ids: list[int]
    gave_up: bool = False


def matching(connection: Connection, wanted: Filter, *, most: int) -> Matching:
    """Return up to `most` matching tasks, for a bulk; each status has a walk of its own. Raises BadValue."""
    if most < 1:
        raise BadValue(f"most={most}: give 1 or more")
    ids: dict[int, None] = {}  # a task may have gone from one status to the next meanwhile
    place: str | None = None
    for _ in range(most // MOST_ROWS + VAIN):
        some, place = matching_page(connection, wanted, place, limit=min(most, MOST_MET))
        ids |= dict.fromkeys(some)
        if place is None or len(ids) >= most:
            return Matching(list(ids)[:most])
    return Matching(list(ids), gave_up=True)


def matching_page(
    connection: Connection, wanted: Filter, place: str | None, *, limit: int = MOST_ROWS
) -> tuple[list[int], str | None]:
    """Return a page of `matching` (1,000 ids at most if tasks are looked up) and the next place; None at the end."""
    walks = list(_walked_apart(wanted.statuses))
    walk, _, after = (place or "0 ").partition(" ")
    if int(walk) >= len(walks):
        return [], None
    wanted = replace(wanted, statuses=walks[int(walk)])
    more = _conditions(wanted) - {"statuses", "role", "upto", "until"}
    if tuple(wanted.statuses or ()) in IDS_OF_WALK and not more:
        ids, onward = _met(connection, wanted, limit, after or None)
    else:
        rows, onward = _page(connection, IDS, wanted, min(limit, MOST_ROWS), after or None)
        ids = [row.id for row in rows]
    following = f"{int(walk) + 1} " if onward is None else f"{walk} {onward}"
    is_last = onward is None and int(walk) + 1 == len(walks)
    return ids, None if is_last else following


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant in the table of tasks, when no task had an id above `upto` and none had ended after `until`."""

    upto: int
    until: datetime


def moment(connection: Connection) -> Moment:
    """Return the present moment."""
    return Moment(**connection.execute(MOMENT).mappings().one())


def _walked_apart(statuses: Sequence[str] | None) -> Iterator[Sequence[str] | None]:
    if statuses is None or set(statuses) == set(ALL):
        yield statuses
        return
    for part in WALKS:
        if part != ALL and (some := tuple(status for status in part if status in statuses)):
            yield some


def _part(statuses: Sequence[str] | None) -> tuple[str, ...]:
    """Return the narrowest walk that covers all of these statuses."""
    for status in statuses or ():
        if status not in ALL:
            raise BadValue(f"status={status!r}: give some of {', '.join(ALL)}")
    narrow = (part for part in WALKS if statuses and set(statuses) <= set(part))
    return next(narrow, ALL)


def _picks(wanted: Filter, part: tuple[str, ...]) -> bool:
    """Return whether the walk may meet rows that do not match."""
    conditions = _conditions(wanted)
    exact = part in (("failed",), ("cancelled",))
    return bool(conditions - {"statuses", "role"}) or not (exact or (part == ALL and not conditions))


def _conditions(wanted: Filter) -> set[str]:
    """Return the names of the filter's conditions."""
    return {name for name, value in asdict(wanted).items() if value is not None}


def refuse(part: tuple[str, ...], limit: int, after: str | None, offset: int = 0) -> None:
    """Raise BadValue for impossible parameters of a page."""
    if not 1 <= limit <= MOST_ROWS:
        raise BadValue(f"limit={limit}: give 1 to {MOST_ROWS:,}")
    if not 0 <= offset <= MOST_OFFSET:
        raise BadValue(f"offset={offset}: give 0 to {MOST_OFFSET:,}, or follow `next` from page to page")
    refuse_both(after, offset)
    if after is not None and not _is_place(part, after):
        raise BadValue(f"after={after!r:.100}: give the `next` of the page before, with the same filter")


def refuse_both(after: str | None, offset: int) -> None:
    """Raise BadValue if both an offset, which counts from the beginning, and a place are given."""
    if after is not None and offset:
        raise BadValue(f"offset={offset}: give `offset` or `after`, not both")


def check(wanted: Filter) -> dict[str, Any]:
    """Return the filter's arguments and ranges as statements take them. Raises BadValue for values no row can have."""
    for name, seconds in (("older_than", wanted.older_than), ("newer_than", wanted.newer_than)):
        if seconds is not None and not 0 <= seconds <= OLDEST:
            raise BadValue(f"{name}={seconds:g}: give 0 to {OLDEST:,.0f} seconds")
    lowest, highest = ends("priority", wanted.priority)
    return {"arguments": _arguments(wanted.arguments), "lowest": lowest, "highest": highest}


def _arguments(wanted: Mapping[str, Any] | None) -> str | None:
    """Return arguments as JSON, as rows keep them. Raises BadValue."""
    try:
        return json.dumps(encoded(dict(wanted), LARGEST)) if wanted else None
    except Unfit as error:
        raise BadValue(f"arguments={list(wanted or ())!r:.100}: no row has such values: {error}") from None


def _is_place(part: tuple[str, ...], after: str) -> bool:
    at, _, last = after.rpartition(" ")
    try:
        if at:
            datetime.fromisoformat(at)
        return bool(at) == (part == ("completed",)) and last.isascii() and last.isdigit() and int(last) < 2**63
    except ValueError:
        return False


def saved_views(connection: Connection, owner: str) -> list[dict[str, Any]]:
    """Return the shared views (their `owner` is empty), and the owner's own."""
    return [dict(row) for row in connection.execute(VIEWS, {"owners": ["", owner]}).mappings()]
