"""Group failures: how many different things go wrong, in which role, since when, and for which accounts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import NamedTuple, NoReturn

from sqlalchemy import Connection, text

from celeriac.errors import BadValue, Unknown
from celeriac.insights.failures.fingerprints import Kind, Said, said_by
from celeriac.insights.failures.marks import OPEN, Mark, marks, retrying
from celeriac.insights.tasks.clock import clock
from celeriac.insights.tasks.lists import MOST_ROWS, Matching, Page
from celeriac.insights.tasks.tasks import find

#: Maximum number of failures that are grouped: the newest ones, by id.
LOOKS_AT = 5_000

#: Maximum number of pages read if a group's failures are only counted.
PAGES = 20

#: Most groups that can be returned: as many as there can be.
MOST = LOOKS_AT

#: Maximum number of tasks, of accounts, and of counts over time that each group lists.
EXAMPLES, ACCOUNTS, PARTS = 5, 10, 24

#: The time (seconds) over which `last_hour` counts.
RECENT = timedelta(hours=1)

#: Most seconds that `since` may go back.
OLDEST = 1e9

# INVARIANT of `names`: one descent for each role with failed tasks. With :begin only the days since then are read.
WALK = text("""
WITH RECURSIVE names AS (
    (SELECT role FROM celeriac.ended WHERE status = 'failed' AND role >= coalesce(CAST(:role AS text), '')
        AND CAST(:begin AS timestamptz) IS NULL ORDER BY status, role LIMIT 1)
    UNION ALL
    SELECT next.role FROM names, LATERAL (
        SELECT role FROM celeriac.ended WHERE status = 'failed' AND role > names.role AND CAST(:role AS text) IS NULL
        ORDER BY status, role LIMIT 1) AS next
), walk AS MATERIALIZED (
    SELECT * FROM (
        (SELECT found.* FROM names, LATERAL (
            SELECT id, task_id, role, account, completed_at FROM celeriac.ended
            WHERE status = 'failed' AND role = names.role
                AND -id > -coalesce(CAST(:before AS bigint), 9223372036854775807)
            ORDER BY status, role, -id LIMIT :most
        ) AS found
        WHERE names.role = coalesce(CAST(:role AS text), names.role)
        ORDER BY -id LIMIT :most)
        UNION ALL
        SELECT id, task_id, role, account, completed_at FROM celeriac.badly_unlisted(
            'failed', :role, coalesce(CAST(:before AS bigint), 9223372036854775807), CAST(:most AS integer))
        WHERE CAST(:begin AS timestamptz) IS NULL
        UNION ALL
        SELECT * FROM celeriac.failed_since(CAST(:begin AS timestamptz), :role,
            coalesce(CAST(:before AS bigint), 9223372036854775807), CAST(:most AS integer))
    ) AS either ORDER BY -id LIMIT :most
)
SELECT id, task_id, role, account, completed_at FROM walk ORDER BY -id
""")

#: Attempts to fill a page: each groups the next 5,000 failures.
ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one kind, among those read. `message`: the newest one's first line. `pattern`: the part of it that
    all have in common. `frame`: their innermost own frame, "file:function". `tasks`: the newest few. `accounts`: the
    first few that were hit, of `accounts_in_all`. `trend`: how many failed in each of 24 equal parts of the time read.
    All of them were given up; `retrying`: how many tasks failed in the same way and are tried again, among the first
    500 of the role. `mark`: somebody's note about it.
    """

    fingerprint: str
    role: str
    type: str | None
    message: str
    pattern: str
    frame: str | None
    count: int
    last_hour: int
    first_seen: datetime
    last_seen: datetime
    tasks: list[int]
    accounts: list[str]
    accounts_in_all: int
    trend: list[int]
    retrying: int = 0
    mark: Mark = field(default_factory=Mark)


@dataclass(frozen=True, slots=True)
class Failures:
    """Groups of failures. `groups`: the most frequent first, of `groups_in_all`. `looked_at`: how many failures were
    read, the newest by id; if `reached_end` is False there are older ones. `begin`: the start of the trends, which end
    now: the requested time, or else that of the oldest failure.
    """

    groups: list[FailureGroup]
    groups_in_all: int
    looked_at: int
    reached_end: bool
    begin: datetime | None


@dataclass(frozen=True, slots=True)
class _Time:
    """The span of time whose failures are counted."""

    begin: datetime
    end: datetime

    def parts(self, times: Sequence[datetime]) -> list[int]:
        """Count `times`, earliest first, in each part of the span; what lies outside counts in the nearest part."""
        part = (self.end - self.begin) / PARTS or timedelta(seconds=1)
        before = [0, *(bisect_left(times, self.begin + n * part) for n in range(1, PARTS)), len(times)]
        return [after - n for n, after in pairwise(before)]


class _Failure(NamedTuple):
    id: int
    role: str
    account: str
    completed_at: datetime
    said: Said

    @property
    def kind(self) -> Kind:
        return self.said.kind


def failures(
    connection: Connection, *, role: str | None = None, since: float | None = None, limit: int = 100,
    state: str | None = None,
) -> Failures:  # fmt: skip
    """Return the newest 5,000 failures of the last `since` seconds in groups of this `state`. Raises BadValue."""
    if state not in (None, "open", "known", "resolved"):
        raise BadValue(f"state={state!r:.50}: give open, known or resolved")
    if not 1 <= limit <= MOST:
        raise BadValue(f"limit={limit}: give 1 to {MOST:,}")
    now = clock(connection)
    begin = _begin(now, since)
    failed, looked_at, _ = _page(connection, role, begin, None)
    reached_end = looked_at < LOOKS_AT
    if not failed:
        return Failures([], 0, looked_at, reached_end, None)
    begin = begin or min(failure.completed_at for failure in failed)
    groups = [one for one in _marked(connection, grouped(failed, _Time(begin, now))) if state in (None, one.mark.state)]
    return Failures(groups[:limit], len(groups), looked_at, reached_end, begin)


def _begin(now: datetime, since: float | None) -> datetime | None:
    """Return the time `since` seconds before now. Raises BadValue."""
    if since is None:
        return None
    if not 0 <= since <= OLDEST:
        raise BadValue(f"since={since:g}: give 0 to {OLDEST:,.0f} seconds")
    return now - timedelta(seconds=since)


def _marked(connection: Connection, groups: list[FailureGroup]) -> list[FailureGroup]:
    """Add each group's mark and the number of tasks that are retried."""
    said = marks(connection, {group.fingerprint: group.last_seen for group in groups})
    again = retrying(connection, {group.role for group in groups})
    return [
        replace(g, mark=said.get(g.fingerprint, OPEN), retrying=again[g.role, g.pattern]) for g in groups
    ]  # fmt: skip


def failed_of(
    connection: Connection, fingerprint: str, *, role: str | None = None, since: float | None = None
) -> list[int]:
    """Return the ids of all failures of a group, newest first, as far back as they are kept. Raises Unknown."""
    ids = [i for page in _of_group(connection, fingerprint, role, since) for i in page]
    return ids or _unknown(fingerprint)


def failing(connection: Connection, fingerprint: str, *, role: str | None = None, most: int) -> Matching:
    """Return up to `most` failures of the group, among the newest 100,000 failures. Raises Unknown."""
    ids: list[int] = []
    pages = _of_group(connection, fingerprint, role, None)
    for page in islice(pages, PAGES):
        ids += page
        if len(ids) >= most:
            return Matching(ids[:most])
    if next(pages, None) is not None:
        return Matching(ids, gave_up=True)
    return Matching(ids or _unknown(fingerprint))


def _of_group(connection: Connection, fingerprint: str, role: str | None, since: float | None) -> Iterator[list[int]]:
    """Yield the ids of a group's failures, one list for each page read."""
    begin, before = _begin(clock(connection), since), None
    while True:
        failed, looked_at, last = _page(connection, role, begin, before)
        same = [one for one in failed if one.kind.fingerprint == fingerprint]
        yield [one.id for one in same]
        if looked_at < LOOKS_AT:
            return
        role = same[0].role if same else role  # All failures of a group have one role, so no other role is read.
        before = last


def _unknown(fingerprint: str) -> NoReturn:
    raise Unknown(f"there are no failures {fingerprint!r}; `celeriac failures list` lists those there are")


def failed_page(
    connection: Connection, fingerprint: str, before: int | None, *, role: str | None = None,
    since: float | None = None, until: datetime | None = None,
) -> tuple[list[int], int | None]:  # fmt: skip
    """Return the group's failures, ended by `until`, among the next 5,000, and the id to go on from: None at last."""
    failed, looked_at, last = _page(connection, role, _begin(clock(connection), since), before)
    same = [one for one in failed if one.kind.fingerprint == fingerprint]
    ids = [one.id for one in same if until is None or one.completed_at <= until]
    return ids, None if looked_at < LOOKS_AT else last


def grouped(failed: Iterable[_Failure], time: _Time) -> list[FailureGroup]:
    """Return groups, the most frequent first, among equals the one with the newest failure. `failed`: newest first."""
    together: dict[str, list[_Failure]] = {}
    for failure in failed:
        together.setdefault(failure.kind.fingerprint, []).append(failure)
    groups = [_group(same, time) for same in together.values()]
    return sorted(groups, key=lambda group: (-group.count, -group.last_seen.timestamp()))


def _page(
    connection: Connection, role: str | None, begin: datetime | None, before: int | None
) -> tuple[list[_Failure], int, int | None]:
    """Return the failures since `begin`, newest first; how many rows were read, and the id of the last of them."""
    parameters = {"role": role, "begin": begin, "before": before, "most": LOOKS_AT}
    rows = connection.execute(WALK, parameters).all()
    meant = [row for row in rows if begin is None or row.completed_at >= begin]
    failed = [
        _Failure(i, role, account, completed_at, said)
        for (i, _, role, account, completed_at), said in zip(meant, said_by(connection, meant), strict=True)
    ]
    return failed, len(rows), rows[-1].id if rows else None


def _group(same: list[_Failure], time: _Time) -> FailureGroup:
    newest = same[0]
    accounts = Counter(failure.account for failure in same if failure.account)
    times = sorted(failure.completed_at for failure in same)
    return FailureGroup(
        fingerprint=newest.kind.fingerprint, role=newest.role, type=newest.kind.type, message=newest.said.message,
        pattern=newest.kind.pattern, frame=newest.kind.frame, count=len(same),
        last_hour=len(times) - bisect_right(times, time.end - RECENT), first_seen=times[0], last_seen=times[-1],
        tasks=[failure.id for failure in same[:EXAMPLES]],
        accounts=[account for account, _ in accounts.most_common(ACCOUNTS)], accounts_in_all=len(accounts),
        trend=time.parts(times),
    )  # fmt: skip


def failed_tasks(
    connection: Connection, fingerprint: str, *, role: str | None = None, limit: int = 100, after: int | None = None
) -> Page:
    """Return the group's tasks before `after`, newest first. A page may be short midway. Raises BadValue, Unknown."""
    if not 1 <= limit <= MOST_ROWS:
        raise BadValue(f"limit={limit}: give 1 to {MOST_ROWS:,}")
    ids, place = list[int](), after
    for _ in range(ATTEMPTS):
        some, place = failed_page(connection, fingerprint, place, role=role)
        ids += some
        if place is None or len(ids) > limit:
            break
    if not ids and place is None and after is None:
        raise Unknown(f"there are no failures {fingerprint!r:.50}; `celeriac failures list` lists those there are")
    following = ids[limit - 1] if len(ids) > limit else place
    tasks = (find(connection, task) for task in ids[:limit])
    return Page([task for task in tasks if task is not None], None if following is None else str(following))
