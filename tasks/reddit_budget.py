"""Reddit's limit, shared: all processes of one OAuth client spend from one row.

A crawl is admitted only if the limit has room for all it may ask, so that no crawl is given up half done for others
that will be, too. Of a window nobody has heard of yet, one crawl goes first and finds out.
"""

from __future__ import annotations

import time

from sqlalchemy import text

from celeriac.store.connections import Database
from tasks.reddit_answers import Limit, RedditRateLimited

#: Two ends of a window that are no further apart (seconds) are one: Reddit tells whole seconds.
SAME_WINDOW = 2.0

#: How long (seconds) a crawl waits in place for the one that finds out, and how often it looks.
WAITS, LOOKS_EVERY = 5.0, 0.1

# INVARIANT: of several at the end of a window, one begins the next, in which nothing remains until its answer comes.
ADMIT = text("""
INSERT INTO reddit_budgets AS b (client, remaining, resets_at, known)
VALUES (:client, 0, statement_timestamp() + :patience * interval '1 second', false)
ON CONFLICT (client) DO UPDATE SET
    known = b.resets_at > statement_timestamp(),
    remaining = CASE WHEN b.resets_at > statement_timestamp() THEN b.remaining - :requests ELSE 0 END,
    resets_at = greatest(b.resets_at, CASE WHEN b.resets_at <= statement_timestamp() THEN excluded.resets_at END)
WHERE b.resets_at <= statement_timestamp() OR b.remaining - :requests >= :reserve
RETURNING known, extract(epoch FROM resets_at - statement_timestamp())::float AS seconds
""")

LEFT = text("""
SELECT greatest(0, extract(epoch FROM resets_at - statement_timestamp()))::float AS seconds,
    known AND resets_at > statement_timestamp() AND remaining - :requests < :reserve AS is_used_up
FROM reddit_budgets WHERE client = :client
""")

# INVARIANT: within a window `remaining` only sinks; what others were admitted for is off it already. The second more
# makes up for Reddit's rounding.
HEARD = text("""
WITH told AS (SELECT statement_timestamp() + (:reset + 1) * interval '1 second' AS resets_at)
UPDATE reddit_budgets b SET
    remaining = CASE WHEN b.known AND told.resets_at < b.resets_at + :same * interval '1 second'
        THEN least(b.remaining, :remaining - :outstanding) ELSE :remaining - :outstanding END,
    resets_at = told.resets_at, known = true
FROM told
WHERE b.client = :client AND (NOT b.known OR told.resets_at > b.resets_at - :same * interval '1 second')
""")

GIVE_BACK = text("""
UPDATE reddit_budgets SET remaining = remaining + :outstanding
WHERE client = :client AND known
    AND abs(extract(epoch FROM resets_at - (statement_timestamp() + :left * interval '1 second'))) < :same
""")


# Nobody has heard of the window begun, and whoever was to find out did not.
NOT_HEARD = text("UPDATE reddit_budgets SET resets_at = statement_timestamp() WHERE client = :client AND NOT known")


class Budget:
    """`client`: whose limit. `reserve`: requests of each window left alone, for those under way as it turns.
    `patience`: seconds after which an answer that would have told of a window is given up.
    """

    def __init__(self, database: Database, client: str, *, reserve: int, patience: float) -> None:
        self.database, self.client, self.reserve, self.patience = database, client, reserve, patience

    def admit(self, requests: int) -> Allowance:
        """Sets as many aside. Raises RedditRateLimited if that is too many for what is left."""
        give_up = time.monotonic() + WAITS
        while (allowance := self._admitted(requests)) is None:
            seconds, is_used_up = self._left(requests)
            if is_used_up or time.monotonic() > give_up:
                raise RedditRateLimited(seconds if is_used_up else min(seconds, WAITS))
            time.sleep(LOOKS_EVERY)
        return allowance

    def _admitted(self, requests: int) -> Allowance | None:
        given = {"client": self.client, "requests": requests, "reserve": self.reserve, "patience": self.patience}
        with self.database.statement() as connection:
            row = connection.execute(ADMIT, given).one_or_none()
        return Allowance(self, requests, finds_out=not row.known, seconds=row.seconds) if row else None

    def _left(self, requests: int) -> tuple[float, bool]:
        with self.database.statement() as connection:
            row = connection.execute(LEFT, {"client": self.client, "requests": requests, "reserve": self.reserve}).one()
        return row.seconds, row.is_used_up

    def heard(self, limit: Limit, outstanding: int) -> None:
        given = {"client": self.client, "remaining": limit.remaining, "reset": limit.reset, "same": SAME_WINDOW}
        with self.database.statement() as connection:
            connection.execute(HEARD, given | {"outstanding": outstanding})

    def give_back(self, outstanding: int, left: float) -> None:
        given = {"client": self.client, "outstanding": outstanding, "left": left, "same": SAME_WINDOW}
        with self.database.statement() as connection:
            connection.execute(GIVE_BACK, given)

    def not_heard(self) -> None:
        with self.database.statement() as connection:
            connection.execute(NOT_HEARD, {"client": self.client})


class Allowance:
    """What one crawl may ask; used with `with`, which gives back what it did not.

    `finds_out`: nobody knows the window yet. `seconds`: until it ends, as far as is known.
    """

    def __init__(self, budget: Budget, requests: int, *, finds_out: bool, seconds: float) -> None:
        self._budget, self._outstanding, self._finds_out = budget, requests, finds_out
        self._limit: Limit | None = None
        self._ends = time.monotonic() + seconds

    def __enter__(self) -> Allowance:
        return self

    def __exit__(self, *_: object) -> None:
        if self._finds_out and self._limit is None:
            self._budget.not_heard()
        elif self._outstanding > 0:
            self._budget.give_back(self._outstanding, self._ends - time.monotonic())

    def spend(self) -> None:
        if self._limit and self._limit.remaining <= 0 and (left := self._ends - time.monotonic()) > 0:
            raise RedditRateLimited(left)
        self._outstanding -= 1

    def heard(self, limit: Limit) -> None:
        self._limit, self._ends = limit, time.monotonic() + limit.reset + 1
        self._budget.heard(limit, max(0, self._outstanding))
