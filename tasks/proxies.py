"""The pool of proxies: each is used by one task at a time, the least recently used goes next, and failures rest it.

`SELECT add_proxy('http://10.0.0.7:3128')` and `SELECT remove_proxy('http://10.0.0.7:3128')` fill and empty it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from sqlalchemy import TextClause, text

from celeriac.store.connections import Database
from tasks.pace import NotNow

#: Failures in a row after which a proxy rests no longer than before, and how long (seconds) that is at most.
DOUBLES, LONGEST_REST = 10, 3600.0

#: Seconds between two looks of a task for a proxy, while all are in use; and while there is none that it can go by.
LOOKS_EVERY, UNFIT_EVERY = 5.0, 60.0

# INVARIANT: two at once take two: a row that the other has locked is skipped, one that it has taken is read again as
# it is by then. A lease that has run out is its holder's no more: what it says at its end finds no row.
TAKE = text("""
WITH free AS (
    SELECT id FROM proxies
    WHERE url ~ :schemes AND coalesce(leased_until, '-infinity') <= clock_timestamp()
        AND coalesce(cooling_until, '-infinity') <= clock_timestamp()
    ORDER BY last_used_at NULLS FIRST, id LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE proxies p SET lease = CAST(:lease AS uuid), last_used_at = clock_timestamp(), updated_at = clock_timestamp(),
    leased_until = clock_timestamp() + :seconds * interval '1 second'
FROM free WHERE p.id = free.id
RETURNING p.url, host(p.address) AS address
""")

# How many there are, how many of these schemes, and how long the first of those rests: one that is merely in use may be
# free at any time.
NONE_FREE = text("""
SELECT count(*) AS proxies, count(*) FILTER (WHERE url ~ :schemes) AS fit,
    min(extract(epoch FROM greatest(cooling_until - clock_timestamp(), interval '0')))
        FILTER (WHERE url ~ :schemes)::float AS rests
FROM proxies
""")

PROLONGED = text("""
UPDATE proxies SET leased_until = clock_timestamp() + :seconds * interval '1 second', updated_at = clock_timestamp()
WHERE lease = CAST(:lease AS uuid) RETURNING true
""")

SUCCEEDED = text("""
UPDATE proxies SET lease = NULL, leased_until = NULL, failures = 0, last_error = NULL, cooling_until = NULL,
    updated_at = clock_timestamp()
WHERE lease = CAST(:lease AS uuid)
""")

FAILED = text("""
UPDATE proxies SET lease = NULL, leased_until = NULL, failures = failures + 1, last_error = :why,
    cooling_until = clock_timestamp()
        + least(:longest, :rest * power(2, least(failures, :doubles))) * interval '1 second',
    updated_at = clock_timestamp()
WHERE lease = CAST(:lease AS uuid)
""")

GIVEN_BACK = text("""
UPDATE proxies SET lease = NULL, leased_until = NULL, updated_at = clock_timestamp() WHERE lease = CAST(:lease AS uuid)
""")


class NoProxyFree(NotNow):
    """Each is in use or rests after a failure; or, where `proxies` is 0, none has a scheme that the task can go by."""

    def __init__(self, proxies: int, retry_after: float) -> None:
        super().__init__(proxies, retry_after)
        self.proxies, self.retry_after = proxies, retry_after

    def __str__(self) -> str:
        if not self.proxies:
            return f"no proxy has a scheme that this task can go by: looking again in {self.retry_after:.1f} s"
        return f"none of {self.proxies} proxies is free: looking again in {self.retry_after:.1f} s"


@dataclass(frozen=True)
class Proxy:
    """`address` is what the outside is to see of it; None: whatever is not the worker's own."""

    lease: str
    url: str = field(repr=False)  # it may hold a password
    address: str | None

    @property
    def server(self) -> str:
        """Without user and password: its name in logs and errors."""
        given = urlsplit(self.url)
        return f"{given.scheme}://{given.netloc.rpartition('@')[2]}"

    @property
    def for_playwright(self) -> dict[str, str]:
        given = urlsplit(self.url)
        user = {"username": given.username, "password": given.password}
        return {"server": self.server} | {name: unquote(value) for name, value in user.items() if value}


class Pool:
    """`seconds`: how long a task may use a proxy; what a killed process has is free again after that. `rest`: seconds
    a proxy is left alone after its first failure; twice as long after each further one in a row, up to an hour.
    `schemes`: an expression that the addresses of its proxies begin with; others it does not take.
    """

    def __init__(self, database: Database, *, seconds: float, rest: float, schemes: str = "^") -> None:
        self._database, self._seconds, self._rest, self._schemes = database, seconds, rest, schemes

    def take(self) -> Proxy | None:
        """The one that was used least recently; None if there are none at all. Raises NoProxyFree."""
        lease = str(uuid.uuid4())
        with self._database.statement() as connection:
            wanted = {"lease": lease, "seconds": self._seconds, "schemes": self._schemes}
            taken = connection.execute(TAKE, wanted).one_or_none()
            if taken is not None:
                return Proxy(lease, taken.url, taken.address)
            proxies, fit, rests = connection.execute(NONE_FREE, {"schemes": self._schemes}).one()
        if not proxies:
            return None
        raise NoProxyFree(fit, max(LOOKS_EVERY, rests or 0) if fit else UNFIT_EVERY)

    def prolong(self, proxy: Proxy) -> bool:
        """Its lease begins anew; False: it has run out, and another task may have the proxy."""
        with self._database.statement() as connection:
            return bool(connection.execute(PROLONGED, {"lease": proxy.lease, "seconds": self._seconds}).scalar())

    def succeeded(self, proxy: Proxy) -> None:
        self._tell(SUCCEEDED, {"lease": proxy.lease})

    def failed(self, proxy: Proxy, why: str) -> None:
        rest = {"rest": self._rest, "longest": LONGEST_REST, "doubles": DOUBLES}
        self._tell(FAILED, {"lease": proxy.lease, "why": why[:500], **rest})

    def give_back(self, proxy: Proxy) -> None:
        """Neither: what ended the visit was not its doing."""
        self._tell(GIVEN_BACK, {"lease": proxy.lease})

    def _tell(self, statement: TextClause, given: Mapping[str, object]) -> None:
        with self._database.statement() as connection:
            connection.execute(statement, given)
