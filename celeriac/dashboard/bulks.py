"""Bulks: one move of all tasks that a filter selects. Confirm it, then follow its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from celeriac import insights
from celeriac.dashboard import acts, words
from celeriac.dashboard.forms import Form, Place, Sent, number
from celeriac.dashboard.guard import Canceller, Prioritiser, Retrier, Viewer
from celeriac.dashboard.page import Page
from celeriac.dashboard.reading import Content
from celeriac.dashboard.tasks import UNASKED, filters_of, is_filter, samples, wanted
from celeriac.errors import BadValue, CeleriacError
from celeriac.insights import Count, Filter, Matching, Moment
from celeriac.operate import bulks
from celeriac.repair import bulks as works
from celeriac.store.states import ALL, why_not

router = APIRouter()


ROWS = 50

#: Each move with the permission it needs, and the word for a task after it.
MOVES = {"retry": ("retry", "retried"), "cancel": ("cancel", "cancelled"), "prioritise": ("priority", "moved")}


@router.get("/bulk")
def listed(page: Viewer) -> Response:
    asked = page.ask("before")
    bulks = page.panel(insights.bulks, limit=ROWS, before=number(asked, "before"))
    return page.show("bulks.html", "Bulk", bulks=bulks, rows=ROWS)


@router.get("/bulk/{number}")
def shown(number: Place, page: Viewer) -> Response:
    page.ask()
    trail = page.panel(insights.audit_trail, kind="bulk", target=str(number), limit=20)
    return page.show("bulk.html", f"Bulk {number}", bulk=page.read(insights.bulk, number), trail=trail)


@router.get("/tasks/matching")
def matching(page: Viewer) -> Response:
    """Show how many tasks the filter selects now, and the form that moves exactly these."""
    asked = page.ask("move", *filters_of(page))
    move = asked.pop("move", "retry")
    if move not in MOVES or not asked:
        raise BadValue(f"move={move!r:.50}: give {', '.join(MOVES)}, and at least one filter")
    now, meant = page.read(insights.moment), works.meant(move, wanted(asked))
    panels = page.at_once(
        tasks=lambda: (
            Content(Matching([]))
            if meant is None
            else page.panel(insights.matching, _at(meant, now), most=words.CAP + 1)
        ),
        refused=partial(page.panel, _refused, move, _at(wanted(asked), now)),
    )
    sentence = ", ".join(f"{name} {value}" for name, value in asked.items())
    return _question(page, move, panels["tasks"], now, sentence, asked, panels["refused"])


@router.get("/retry-failures/{fingerprint}")
def failures(fingerprint: str, page: Viewer) -> Response:
    """Show how many failures of one kind there are, and the form that retries these."""
    role = page.ask("role").get("role")
    now = page.read(insights.moment)
    tasks = page.panel(insights.failing, fingerprint, role=role, most=words.CAP + 1)
    fields = {works.FINGERPRINT: fingerprint} | ({"role": role} if role else {})
    return _question(page, "retry", tasks, now, f"the fingerprint {fingerprint}", fields)


def _question(
    page: Page, move: str, tasks: Content, now: Moment, sentence: str, fields: Mapping[str, str],
    refused: Content | None = None,
) -> Response:  # fmt: skip
    """Request confirmation. `refused`: tasks that the filter selects and to which the move cannot apply."""
    meant: Matching = tasks.value or Matching([])
    n = Count(min(len(meant.ids), words.CAP), exact=len(meant.ids) <= words.CAP)
    many = f"{words.figure(n)} {'task' if n.n == 1 else 'tasks'}{' or more' if meant.gave_up else ''}"
    title = f"{move.capitalize()} {many}?"
    permission, done_to = MOVES[move]
    return page.show(
        "ask-bulk.html", "How many?" if tasks.stopped else title, move=move, permission=permission, done_to=done_to,
        count=Content(n, tasks.stopped), many=many, gave_up=meant.gave_up,
        needs_why=tasks.stopped is not None or _needs_why(meant), samples=samples(page, meant.ids), sentence=sentence,
        refused=refused or Content([]),
        fields={**fields, "upto": str(now.upto), "until": now.until.isoformat()},
    )  # fmt: skip


def _refused(connection: Connection, move: str, meant: Filter) -> list[tuple[str, Count, str]]:
    """Return each selected status that the move refuses, with the number of its tasks (counted to 1,000), and why."""
    refused = []
    for status in ALL if meant.statuses is None else meant.statuses:
        if why := why_not(move, status):
            matching = insights.matching(connection, replace(meant, statuses=[status]), most=UNASKED + 1)
            n, reason = len(matching.ids), why.partition(": ")[2]
            refused += [(status, Count(min(n, UNASKED), exact=n <= UNASKED), reason)] if n else []
    return refused


def _needs_why(meant: Matching) -> bool:
    return len(meant.ids) > UNASKED or meant.gave_up


def _at(meant: Filter, now: Moment) -> Filter:
    return replace(meant, upto=now.upto, until=now.until)


@router.post("/bulk/retry")
def retry(page: Retrier, form: Sent) -> Response:
    return _ask(page, form, "retry")


@router.post("/bulk/cancel")
def cancel(page: Canceller, form: Sent) -> Response:
    return _ask(page, form, "cancel")


@router.post("/bulk/prioritise")
def prioritise(page: Prioritiser, form: Sent) -> Response:
    return _ask(page, form, "prioritise")


@router.post("/bulk/{number}/stop")
def stop(number: Place, page: Canceller, form: Sent) -> Response:
    def verb(connection: Connection) -> object:
        return bulks.stop(connection, number, by=page.bearer.name, why=form["why"])

    return acts.change(page, page.to("bulk", number), verb, f"Bulk {number} is stopped; what was moved stays moved.")


def _ask(page: Page, form: Form, move: str) -> Response:
    try:
        asked = {name: form[name] for name in form.fields if is_filter(name) and form[name]}
        meant: Filter | str = form[works.FINGERPRINT] or wanted(asked)
        at = _moment(form)
        if not form["why"] and _are_many(page, move, meant, at, asked.get("role")):
            raise BadValue(f"over {words.figure(UNASKED)} tasks at once need a reason")
        priority = form.whole("to") if move == "prioritise" else None

        def ask(connection: Connection) -> int:
            role, by, why = asked.get("role"), page.bearer.name, form["why"]
            return works.ask(connection, move, meant, at=at, role=role, priority=priority, by=by, why=why)

        bulk = page.write(ask)
    except CeleriacError as error:
        return page.go(page.to("bulk"), f"Nothing was changed: {error}.")
    works.start(page.celeriac.database)
    return page.go(page.to("bulk", bulk), "It was asked for.")


def _moment(form: Form) -> Moment:
    """Return the moment at which the tasks of the confirmation page were counted. Raises BadValue."""
    try:
        until = datetime.fromisoformat(form["until"])
    except ValueError:
        until = None
    if until is None or until.tzinfo is None:
        raise BadValue(f"until={form['until']!r:.50}: give an instant with its zone")
    return Moment(form.whole("upto"), until)


def _are_many(page: Page, move: str, meant: Filter | str, at: Moment, role: str | None) -> bool:
    """Return whether the tasks are, or may be, so many that the change needs a reason."""
    if isinstance(meant, str):
        return _needs_why(page.read(insights.failing, meant, role=role, most=UNASKED + 1))
    allowed = works.meant(move, meant)
    return allowed is not None and _needs_why(page.read(insights.matching, _at(allowed, at), most=UNASKED + 1))
