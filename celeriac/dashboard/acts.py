"""Acts: run a button's action, and report it in a sentence on the next page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastapi import Response
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.dashboard.errors import refusal
from celeriac.dashboard.page import Page
from celeriac.dashboard.words import plural
from celeriac.errors import CeleriacError
from celeriac.operate import PATIENCE, steer
from celeriac.operate.steer import Steered
from celeriac.store.failures import is_locked, log_error
from celeriac.store.messages import in_lines

logger = logging.getLogger(__name__)

#: Maximum number of kinds of refusals shown; the others are counted.
REFUSALS_NAMED = 5


def done(page: Page, back: str, act: Callable[[], str]) -> Response:
    """Run `act` and show the sentence it returns; if it is refused, show the reason."""
    try:
        said = act()
    except CeleriacError as error:
        said = f"Nothing was changed: {error}."
    except DBAPIError as error:
        if not is_locked(error):
            raise
        said = "Nothing was changed: somebody's open transaction has what this needs. Try again soon."
    return page.go(back, said)


def change(
    page: Page, back: str, verb: Callable[[Connection], Any], said: str, *, kick: Sequence[str] = ()
) -> Response:
    """Make one change in one transaction. `kick`: the roles to wake, which may have work now."""

    def act() -> str:
        page.write(verb)
        if kick:
            page.celeriac.kick(kick)
        return said

    return done(page, back, act)


def move(
    page: Page, back: str, ids: Sequence[int], verb: Callable[[Connection, Sequence[int]], Steered], done_to: str
) -> Response:
    """Steer those of these tasks whose state allows it, in bounded transactions."""

    def act() -> str:
        return each(steer.in_batches(page.celeriac.database, ids, verb, patience=PATIENCE), done_to)

    return done(page, back, act)


def each(batches: Iterable[Steered], done_to: str) -> str:
    """Summarise the batches. Each is committed, so an error in a later one is shown after the earlier results."""
    steered = Steered()
    try:
        for batch in batches:
            steered += batch
    except Exception as error:
        if not steered.changed:
            raise
        log_error(logger, error, "Stopped amid many tasks")
        return f"{summary(steered, done_to)} Then it stopped, and the rest is as it was: {_why(error)}"
    return summary(steered, done_to)


def _why(error: Exception) -> str:
    if isinstance(error, DBAPIError) and is_locked(error):
        return "somebody's open transaction has what this needs. Try again soon."
    return refusal(error)[1]


def summary(steered: Steered, done_to: str) -> str:
    """Return a summary like `3 will run again, 1 was refused: the task is running …`."""
    ended = len(steered.changed) - steered.asked
    parts = [f"{plural(ended, 'task')} {done_to}"] if ended or not steered.asked else []
    if steered.asked:
        parts.append(f"{plural(steered.asked, 'task')} told to stop")
    if steered.refused:
        kinds = in_lines(steered.refused)
        why = "; ".join(kinds[:REFUSALS_NAMED])
        more = f"; and for {len(kinds) - REFUSALS_NAMED} reasons more" if len(kinds) > REFUSALS_NAMED else ""
        parts.append(f"{plural(len(steered.refused), 'was', 'were')} not changed ({why}{more})")
    if steered.missing:
        parts.append(f"{plural(len(steered.missing), 'is', 'are')} not here any more")
    return ", ".join(parts) + "."
