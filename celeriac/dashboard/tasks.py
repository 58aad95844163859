"""Tasks: the list, actions on the ticked ones, and saved views: named filters, one's own or shared."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.responses import StreamingResponse

from celeriac import insights
from celeriac.dashboard import acts, columns, grammar, words
from celeriac.dashboard.forms import Form, Sent, seconds
from celeriac.dashboard.grammar import BadQuery, is_argument
from celeriac.dashboard.guard import Canceller, Prioritiser, Retrier, Sharer, Viewer
from celeriac.dashboard.page import Elsewhere, Page
from celeriac.dashboard.reading import Content, bound
from celeriac.errors import BadValue
from celeriac.insights import ARGUMENT, Filter
from celeriac.insights.tasks import exports, lists
from celeriac.insights.tasks.conditions import CONDITIONS, WAITS
from celeriac.insights.tasks.veil import veiled
from celeriac.operate import steer, views
from celeriac.store.failures import log_error

logger = logging.getLogger(__name__)

router = APIRouter()


#: Filters of the list, in the order of its address.
FILTERS = tuple(one.page for one in CONDITIONS)

#: Rows on a page.
ROWS = 50

#: Number of tasks that a confirmation shows.
SAMPLES = 5

#: Points that a boost adds to a priority.
BOOST = 20

#: The number of tasks above which a change needs a reason.
UNASKED = 1_000


@router.get("/tasks")
def listed(page: Viewer) -> Response:
    asked = page.ask(*filters_of(page), "q", "was", "columns", "before")
    if unknown := columns.unknown(asked.get("columns")):
        page.notices.append(f"{', '.join(unknown):.200}: no such column; there are {', '.join(columns.COLUMNS)}.")
    line, bad = asked.get("q"), None
    if line is not None:
        try:
            raise Elsewhere(page.to("tasks", **_meant(line), columns=asked.get("columns")))
        except BadQuery as error:
            bad = error
    return _listed(page, _last_good(asked) if bad else asked, line, bad)


def _listed(page: Page, asked: Mapping[str, str], line: str | None, bad: BadQuery | None) -> Response:
    try:
        page.refuse_to_narrow(asked)
        tasks = page.panel(insights.list_tasks, wanted(asked), limit=ROWS, after=asked.get("before"))
    except BadValue as error:
        page.notices.append(f"{error}.")
        tasks = Content()
    role = asked.get("role")
    return page.show(
        "tasks.html", "Tasks", tasks=tasks, counts=page.panel(insights.counts, role), bad=bad,
        waiting=page.panel(insights.waiting, role), shown=columns.chosen(asked.get("columns")),
        line=grammar.written(page.filtered()) if line is None else line, was=grammar.written(_filter(asked)),
        views=Content() if page.live else page.panel(insights.saved_views, page.bearer.name),
        looks_at=lists.LOOKS_AT, rows=ROWS,
    )  # fmt: skip


def _meant(line: str) -> dict[str, str]:
    """Return a search line's filter, as in the address. Raises BadQuery with the place of the wrong value."""
    terms = grammar.parse(line, FILTERS)
    for term in terms.values():
        try:
            wanted({term.name: term.value})
        except BadValue as error:
            raise BadQuery(str(error), term.at) from None
    return {name: term.value for name, term in terms.items()}


def _last_good(asked: Mapping[str, str]) -> dict[str, str]:
    """Return the last valid filter, whose rows stay on the page while the search line cannot be read."""
    try:
        return _meant(asked.get("was", ""))
    except BadQuery:
        return {}


def is_filter(name: str) -> bool:
    return name in FILTERS or is_argument(name)


def filters_of(page: Page) -> tuple[str, ...]:
    """Return the names of the fixed filters, and of the query's filters by arguments."""
    return (*FILTERS, *sorted(name for name in page.request.query_params if name not in FILTERS and is_filter(name)))


def _filter(asked: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in asked.items() if is_filter(name)}


@router.get("/tasks/export.{kind}")
def export(kind: exports.Kind, page: Viewer) -> Response:
    """Export the whole list as a file, up to 100,000 tasks."""
    asked = page.ask(*filters_of(page))
    page.refuse_to_narrow(asked)
    meant = wanted(asked)

    def read(limit: int, after: str | None) -> insights.Page:
        with page.celeriac.database.reading() as connection:
            bound(connection)
            listed = insights.list_tasks(connection, meant, limit=limit, after=after)
        return listed if page.may("view_args") else veiled(listed)

    headers = {"Content-Disposition": f'attachment; filename="tasks.{kind}"'}
    if page.without_body:
        return Response(media_type=_FILES[kind], headers=headers)
    lines = exports.lines(kind, exports.pages(read, most=exports.MOST))
    begun = [next(lines, ""), next(lines, "")]
    return StreamingResponse(_whole(kind, chain(begun, lines)), media_type=_FILES[kind], headers=headers)


_FILES: Mapping[exports.Kind, str] = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson"}


def _whole(kind: exports.Kind, lines: Iterator[str]) -> Iterator[str]:
    """Yield the file's lines; if an error cuts them short, the last one says so."""
    try:
        yield from lines
    except (DBAPIError, NoConnection) as error:
        log_error(logger, error, "An export ended amid its tasks")
        yield exports.note(kind, "this is not all: Postgres took too long, or went away; narrow the filter")


def wanted(asked: Mapping[str, str]) -> Filter:
    """Return the query's filter. Raises BadValue."""
    asked = {**asked, "account": words.account_of(asked["account"])} if "account" in asked else asked
    if asked.get("waits") not in (None, *WAITS):
        raise BadValue(f"waits={asked['waits']!r:.50}: give {', '.join(WAITS[:-1])} or {WAITS[-1]}")
    values: dict[str, Any] = {
        one.name: seconds(one.page, asked.get(one.page)) if one.name.endswith("_than") else asked.get(one.page)
        for one in CONDITIONS
    }
    words_of = str(values.pop("status") or "").replace(",", " ").split()
    meant = Filter.of(words_of, **values, arguments=_arguments(asked) or None)
    insights.check(meant)
    return meant


def _arguments(asked: Mapping[str, str]) -> dict[str, Any]:
    texts = {name.removeprefix(ARGUMENT): value for name, value in asked.items() if is_argument(name)}
    return {name: insights.as_argument(value) for name, value in texts.items()}


def samples(page: Page, ids: Sequence[int]) -> list[dict[str, Any]]:
    """Return the first few of these tasks."""
    tasks = page.at_once(**{str(task): partial(page.read, insights.find, task) for task in ids[:SAMPLES]})
    return [tasks[str(task)] for task in ids[:SAMPLES] if tasks[str(task)] is not None]


@router.post("/tasks/retry")
def retry_ticked(page: Retrier, form: Sent) -> Response:
    return _ticked(page, form, "retry", steer.retry, "will run again")


@router.post("/tasks/cancel")
def cancel_ticked(page: Canceller, form: Sent) -> Response:
    """Cancel after a confirmation, as it cannot be undone."""
    return _ticked(page, form, "cancel", steer.cancel, "cancelled")


@router.post("/tasks/prioritise")
def prioritise_ticked(page: Prioritiser, form: Sent) -> Response:
    try:
        verb = partial(steer.set_priority, priority=form.whole("priority"))
    except BadValue as error:
        return page.go(_back(page, form), f"Nothing was changed: {error}.")
    return _ticked(page, form, "prioritise", verb, f"have the priority {form.whole('priority')}")


@router.post("/tasks/boost")
def boost_ticked(page: Prioritiser, form: Sent) -> Response:
    """Raise priorities by 20, to 100 at most."""
    return _ticked(page, form, "boost", partial(steer.boost, boost=BOOST), "moved up")


@router.post("/tasks/hasten")
def hasten_ticked(page: Prioritiser, form: Sent) -> Response:
    """Make the ticked tasks that wait for their time due now."""
    return _ticked(page, form, "hasten", steer.hasten, "due now")


def _ticked(page: Page, form: Form, move: str, verb: Callable[..., steer.Steered], done_to: str) -> Response:
    ids, sure = form.tasks(), bool(form["sure"])
    if (move == "cancel" and not sure) or (len(ids) > UNASKED and not form["why"]):
        if sure:
            page.notices.append(f"Over {words.figure(UNASKED)} tasks at once need a reason.")
        return page.show(
            "confirm.html", f"{move.capitalize()} {words.plural(len(ids), 'task')}?", move=move, ids=ids,
            samples=samples(page, ids), unasked=UNASKED, priority=form["priority"],
        )  # fmt: skip
    act = partial(verb, by=page.bearer.name, why=form["why"])
    return acts.move(page, _back(page, form), ids, act, done_to)


def _back(page: Page, form: Form) -> str:
    """Return the list's address with the filter that it had."""
    was = {name.removeprefix("was_"): form[name] for name in form.fields if name.startswith("was_")}
    return page.to("tasks", **_filter(was), columns=was.get("columns"))


@router.post("/views/mine")
def save(page: Viewer, form: Sent) -> Response:
    return _save(page, form, page.bearer.name)


@router.post("/views/shared")
def share(page: Sharer, form: Sent) -> Response:
    return _save(page, form, views.ALL)


@router.post("/forget-view/mine")
def forget(page: Viewer, form: Sent) -> Response:
    return _forget(page, form, page.bearer.name)


@router.post("/forget-view/shared")
def forget_shared(page: Sharer, form: Sent) -> Response:
    return _forget(page, form, views.ALL)


def _save(page: Page, form: Form, owner: str) -> Response:
    name, fields = form.name("name"), [field for field in form.fields if is_filter(field) or field == "columns"]
    values = {field: form.name(field) for field in fields if form.name(field)}

    def verb(connection: Connection) -> None:
        insights.refuse_sensitive(connection, wanted(values).arguments or ())
        views.save(connection, owner, name, values, by=page.bearer.name)

    return acts.change(page, page.to("tasks", **values), verb, f"The view {name} is saved.")


def _forget(page: Page, form: Form, owner: str) -> Response:
    name = form.name("name")
    verb = partial(views.forget, owner=owner, name=name, by=page.bearer.name)
    return acts.change(page, page.to("tasks"), verb, f"The view {name} is forgotten.")
