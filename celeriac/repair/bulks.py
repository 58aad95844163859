"""Work on bulk actions, a bounded transaction at a time.

API servers and the command line do this, not beat, whose login may not write the audit trail. Several at once share the
work; if one is killed, the next goes on from there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from celeriac import insights, operate
from celeriac.errors import BadValue
from celeriac.insights import MOST_ROWS, Filter, Moment
from celeriac.operate import bulks
from celeriac.operate.bulks import GATHERING
from celeriac.store.connections import Database
from celeriac.store.failures import Away, is_gone, is_locked, log_error, retry_deadlocks
from celeriac.store.plans import lookups
from celeriac.store.states import MOVES

logger = logging.getLogger(__name__)

#: Seconds that a step waits for another transaction's lock: longer than Postgres takes to detect a deadlock, but less
#: than an operator's call waits, since one that stops the bulk waits for the step.
PATIENCE = 0.75 * operate.PATIENCE

#: Number of tasks that a gathering transaction looks up.
PAGE = MOST_ROWS

#: A filter by kind of failure, instead of by a list's conditions.
FINGERPRINT = "fingerprint"


def meant(move: str, wanted: Filter) -> Filter | None:
    """Narrow a filter to the statuses that allow the move; None if there are none."""
    statuses = [status for status in MOVES[move] if wanted.statuses is None or status in wanted.statuses]
    return replace(wanted, statuses=statuses) if statuses else None


def conditions(wanted: Filter) -> dict[str, Any]:
    """Return a filter's conditions as a bulk's row stores them."""
    fields = {name: getattr(wanted, name) for name in Filter.__dataclass_fields__ if name not in ("upto", "until")}
    return {name: list(v) if name == "statuses" else v for name, v in fields.items() if v is not None}


def ask(
    connection: Connection, move: str, wanted: Filter | str, *, at: Moment | None = None, role: str | None = None,
    by: str, why: str = "", priority: int | None = None,
) -> int:  # fmt: skip
    """Create a bulk of the tasks a filter selects, or of a kind of failure (in that role), as of that moment or now;
    return its number. Raises BadValue.
    """
    now = insights.moment(connection)
    at = at or now
    if at.upto > now.upto or at.until > now.until:
        raise BadValue(f"until={at.until}: give an instant that was")
    if isinstance(wanted, Filter):
        insights.check(wanted)
        insights.refuse_sensitive(connection, wanted.arguments or (), wanted.role)
    of_failures = {FINGERPRINT: wanted} | ({"role": role} if role else {})
    fields = of_failures if isinstance(wanted, str) else conditions(wanted)
    return bulks.ask(connection, move, fields, upto=at.upto, until=at.until, by=by, why=why, priority=priority)


@dataclass(frozen=True, slots=True)
class Step:
    """A step's result. `moved`: how many tasks it moved, 0 if it gathered. `went_on` False: something kept it from its
    next tasks.
    """

    bulk: int
    moved: int = 0
    went_on: bool = True


def work(database: Database) -> int:
    """Work on all open bulks in turn until there is none, or none goes on; return how many tasks were moved."""
    after, moved, went_on = 0, 0, False
    while True:
        done = step(database, after)
        if done is not None:
            after, moved, went_on = done.bulk, moved + done.moved, went_on or done.went_on
        elif went_on:
            after, went_on = 0, False
        else:
            return moved


def step(database: Database, after: int = 0) -> Step | None:
    """Run one transaction of the next open bulk that nobody else works on; None if there is none."""
    tried: list[int] = []
    try:
        return retry_deadlocks(partial(_step, database, after, tried))
    except Exception as error:
        if not tried or is_gone(error):
            raise
        _tell(database, tried[-1], error)
        return Step(tried[-1], went_on=False)


def _step(database: Database, after: int, tried: list[int]) -> Step | None:
    with database.transaction(patience=PATIENCE) as connection:
        bulk = bulks.hold(connection, after)
        if bulk is None:
            return None
        tried.append(bulk.id)
        if bulk.state != GATHERING:
            return Step(bulk.id, bulks.move_some(connection, bulk))
        with lookups(connection):
            ids, place = _page(connection, bulk)
        bulks.gather(connection, bulk.id, ids, place)
        return Step(bulk.id)


def _page(connection: Connection, bulk: Row[Any]) -> tuple[list[int], str | None]:
    """Return the next page of the tasks selected, and the place to go on from."""
    if FINGERPRINT not in bulk.filter:
        wanted = meant(bulk.move, Filter(**bulk.filter, upto=bulk.upto, until=bulk.until))
        return ([], None) if wanted is None else insights.matching_page(connection, wanted, bulk.place, limit=PAGE)
    before = bulk.upto + 1 if bulk.place is None else int(bulk.place)
    ids, last = _failed(connection, bulk.filter, before, bulk.until)
    return ids, None if last is None else str(last)


def _failed(
    connection: Connection, fields: Mapping[str, Any], before: int, until: datetime
) -> tuple[list[int], int | None]:
    return insights.failed_page(connection, fields[FINGERPRINT], before, role=fields.get("role"), until=until)


def _tell(database: Database, bulk: int, error: Exception) -> None:
    if is_locked(error):
        trouble = "somebody's open transaction has what the next tasks need; it is tried again"
    else:
        trouble = "a step failed, and the log of the process that worked on it has the reason; it is tried again"
        log_error(logger, error, "A step of bulk %d failed", bulk)
    try:
        with database.transaction(patience=PATIENCE) as connection:
            bulks.say_trouble(connection, bulk, trouble)
    except DBAPIError as busy:
        if not is_locked(busy):  # somebody else works on it
            raise


_asked, _working = threading.Event(), threading.Lock()


def start(database: Database) -> threading.Thread | None:
    """Work in a thread and return it; None if this process already has one, which checks once more before it ends."""
    _asked.set()
    if not _working.acquire(blocking=False):
        return None
    thread = threading.Thread(target=_work_and_release, args=(database,), name="celeriac-bulks", daemon=True)
    try:
        thread.start()
    except BaseException:
        _working.release()
        raise
    return thread


def _work_and_release(database: Database) -> None:
    try:
        while _asked.is_set():
            _asked.clear()
            work(database)
    except Exception as error:
        if is_gone(error):
            Away().say(error)
        else:
            log_error(logger, error, "Bulks could not be worked on; they are tried again")
    finally:
        _working.release()
    if _asked.is_set():
        start(database)


class BulkWorker(threading.Thread):
    """The thread of an API server that goes on with open bulks, until `ending`."""

    def __init__(self, database: Database, every: float, ending: threading.Event) -> None:
        super().__init__(name="celeriac-bulks-left", daemon=True)
        self.database, self.every, self.ending = database, every, ending

    def run(self) -> None:
        while True:
            start(self.database)
            if self.ending.wait(self.every):
                return
