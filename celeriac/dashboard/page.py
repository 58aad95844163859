"""A page, as a handler uses it: one request, its links, its reading, and its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from fastapi import Request, Response
from fastapi.encoders import jsonable_encoder
from jinja2 import Environment
from sqlalchemy import Connection
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse

from celeriac.dashboard.address import JSON, PAGE, path_to, root_of, wants_json, within, zone_of
from celeriac.dashboard.also import also
from celeriac.dashboard.reading import Content, Reading
from celeriac.dashboard.shown import Fragments, Rendered, Shown, rendered
from celeriac.errors import BadValue
from celeriac.insights.tasks.veil import refused, veiled
from celeriac.operate import PATIENCE
from celeriac.operate.tokens import Bearer
from celeriac.store.failures import retry_deadlocks

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Parts of an address with the place in a list; and the maximum number of earlier pages whose places it keeps.
PLACES, MOST_SEEN = ("before", "after"), 20

#: Parts of an address that do not filter.
_NO_FILTERS = (*PLACES, "seen", "q", "was", "columns")

THEMES = ("system", "light", "dark")

#: The cookie that brings a button's result to the next page, and the most bytes of it that browsers accept.
RESULT, LONGEST_RESULT = "celeriac-told", 3_000


@dataclass(frozen=True, slots=True)
class Site:
    """The state that all pages share."""

    celeriac: Celeriac
    reading: Reading
    templates: Environment
    static: Mapping[str, str]
    shown: Shown = field(default_factory=Shown)


class Elsewhere(Exception):
    """Raised to redirect to another address, such as the page's canonical one."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


class Repeated(Exception):
    """Raised to repeat the answer that another viewer has just got."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


@dataclass
class Page:
    """A page. Links are relative, so that a proxy may serve it anywhere. `moment`: renderings of this moment."""

    request: Request
    bearer: Bearer
    permissions: frozenset[str]
    moment: dict[Hashable, Rendered] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    asked: dict[str, str] = field(default_factory=dict)
    known: tuple[str, ...] = ()

    @property
    def site(self) -> Site:
        site: Site = self.request.app.state.site
        return site

    @property
    def celeriac(self) -> Celeriac:
        return self.site.celeriac

    @property
    def live(self) -> bool:
        """Return whether the page's own script polls for changes."""
        return self.request.headers.get("live") == "1"

    @property
    def wants_json(self) -> bool:
        return wants_json(self.request)

    @property
    def without_body(self) -> bool:
        """Return whether only the headers are requested (HEAD)."""
        return bool(self.request.scope.get("without_body"))

    @cached_property
    def root(self) -> str:
        """The relative path from this page to the dashboard's root."""
        return root_of(self.request)

    @property
    def name(self) -> str:
        """The first part of its path: `tasks`."""
        return self._path.strip("/").partition("/")[0] or "overview"

    @property
    def _path(self) -> str:
        path: str = self.request.scope["path"]
        return path.removeprefix(self.request.scope.get("root_path", ""))

    @property
    def theme(self) -> str:
        name = self.request.cookies.get("celeriac-theme", "")
        return name if name in THEMES else THEMES[0]

    @cached_property
    def zone_name(self) -> str:
        name = unquote(self.request.cookies.get("celeriac-zone", ""))
        return name if zone_of(name) else "UTC"

    @cached_property
    def zone(self) -> tzinfo:
        return zone_of(self.zone_name) or UTC

    @property
    def at(self) -> str:
        """The page's address below the dashboard's root, for a form that returns here."""
        query = self.request.url.query
        return within(self.request).lstrip("/") + (f"?{query}" if query else "")

    @property
    def base_url(self) -> str:
        """The API's address, as the reader's browser calls it."""
        return str(self.request.base_url).rstrip("/").removesuffix("/admin")

    def also(self) -> list[tuple[str, str]]:
        """Return other ways to the same content, by name."""
        name, of = self.name, self._path.removeprefix("/").partition("/")[2]
        of = "" if (name, of) == ("tasks", "matching") else of  # no task's id, but tasks that a filter selects
        return also(name, of, self.filtered())

    def may(self, permission: str) -> bool:
        return permission in self.permissions

    def to(self, *parts: object, **query: object) -> str:
        """Return the address of another page; parts may have slashes."""
        address = self.root + path_to(*parts)
        asked = {name: str(value) for name, value in query.items() if value not in (None, "")} if query else None
        return f"{address}?{urlencode(asked)}" if asked else address

    def here(self, **changes: object) -> str:
        """Return this page's address with a changed query. A new place in the list drops the earlier ones."""
        values = self.asked | ({"seen": None} if changes.keys() & set(PLACES) else {}) | changes
        return "?" + urlencode({name: str(values[name]) for name in self.known if values.get(name) not in (None, "")})

    def older(self, cursor: object, place: str = "before") -> str:
        """Return the address of the list's next page, with the places of the pages before it."""
        seen = [*self._seen, self.asked.get(place, "")][-MOST_SEEN:]
        return self.here(**{place: cursor, "seen": json.dumps(seen, separators=(",", ":"))})

    def newer(self, place: str = "before") -> str:
        """Return the address of the page before this one; the first if unknown."""
        *seen, last = self._seen or [""]
        return self.here(**{place: last, "seen": json.dumps(seen, separators=(",", ":")) if seen else None})

    @property
    def _seen(self) -> list[str]:
        """The places in the list of the pages before this one."""
        try:
            seen = json.loads(self.asked.get("seen", "[]"))
        except (ValueError, RecursionError):
            return []
        return [one for one in seen if isinstance(one, str)] if isinstance(seen, list) else []

    def filtered(self) -> dict[str, str]:
        """Return the page's filters, without its place in the list and its columns."""
        return {name: value for name, value in self.asked.items() if name not in _NO_FILTERS}

    def json_link(self) -> str:
        path = within(self.request).lstrip("/") or "overview"
        query = self.request.url.query
        return f"{self.root}{path.removesuffix(PAGE)}{JSON}" + (f"?{query}" if query else "")

    def ask(self, *known: str) -> dict[str, str]:
        """Return the query's values for these names. Others are ignored with a notice; a redirect drops empty ones."""
        known += ("seen",) if {*known} & {*PLACES} else ()
        query, self.known = dict(self.request.query_params), known
        self.asked = {name: query[name] for name in known if query.get(name)}
        if unknown := sorted(query.keys() - set(known)):
            self.notices.append(f"{', '.join(unknown)}: no such filter here, so it was ignored.")
        elif len(self.asked) < len(query) and not self.live:
            raise Elsewhere(self.here())
        return self.asked

    def read(self, insight: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        value = self.site.reading.of(insight, *args, **kwargs)
        return value if self.may("view_args") else veiled(value)

    def panel(self, insight: Callable[..., Any], *args: Any, **kwargs: Any) -> Content:
        return self._as_may_be_seen(self.site.reading.panel(insight, *args, **kwargs))

    def examined(self) -> Content:
        """Return the doctor's findings."""
        return self._as_may_be_seen(self.site.reading.examined())

    def _as_may_be_seen(self, content: Content) -> Content:
        return content if self.may("view_args") else replace(content, value=veiled(content.value))

    def refuse_to_narrow(self, asked: Mapping[str, str]) -> None:
        """Raise BadValue for a filter that would reveal values that this token may not see."""
        if not self.may("view_args") and (names := refused(asked)):
            raise BadValue(f"{', '.join(names)}: this token sees neither arguments nor errors: it lacks the scope read")

    def at_once(self, **panels: Callable[[], Any]) -> dict[str, Any]:
        """Run these reads, several at the same time, and return the results by name."""
        return self.site.reading.at_once(panels)

    def write(self, act: Callable[[Connection], Any]) -> Any:
        """Run `act` in one transaction, which waits only briefly for others' locks."""

        def once() -> Any:
            with self.celeriac.database.transaction(patience=PATIENCE) as connection:
                return act(connection)

        return retry_deadlocks(once)

    def show(self, template: str, title: str, *, status: int = 200, **panels: Any) -> Response:
        """Answer with HTML, or the panels alone as JSON; 304 while nothing but the time has changed."""
        if self.wants_json:
            return JSONResponse({name: _bare(value) for name, value in panels.items()}, status)
        if self.live:
            shown = self._shared(template, panels | {"title": title, "result": None})
            if status == 200:
                self.moment[self._view] = shown
            return self._answer(shown, status)
        result = self.request.cookies.get(RESULT)
        said = unquote(result) if result else None
        answer = self._answer(rendered(self.render(template, **panels, title=title, result=said)), status)
        if result and answer.status_code != 304:
            answer.delete_cookie(RESULT, path="/", httponly=True, samesite="lax")
        return answer

    def earlier(self) -> Response | None:
        """Return the answer to the page's script, if the same view was rendered since the last reading."""
        shown = self.moment.get(self._view) if self.live and not self.wants_json else None
        return None if shown is None else self._answer(shown)

    def _answer(self, shown: Rendered, status: int = 200) -> Response:
        headers, asked = {"ETag": shown.tag}, self.request.headers
        if status == 200 and asked.get("if-none-match") == shown.tag:
            return Response(status_code=304, headers=headers)
        if self.live and "gzip" in asked.get("accept-encoding", ""):
            return HTMLResponse(
                shown.packed, status, headers=headers | {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            )
        return HTMLResponse(shown.html, status, headers=headers)

    def render(self, template: str, **values: Any) -> str:
        shown = self.site.templates.get_template(f"pages/{template}")
        usual = {"layout": "parts/base.html", "page": self, "site": self.site, "fragments": Fragments()}
        return shown.render(usual | self._always() | values)

    def _shared(self, template: str, values: dict[str, Any]) -> Rendered:
        figures = self._always() | values
        today = figures["now"].astimezone(self.zone).date()
        view = (template, *self._view, *self.notices, today)
        return self.site.shown.get(view, figures, lambda made: self.render(template, fragments=made, **figures))

    @property
    def _view(self) -> tuple[Hashable, ...]:
        """Return the key of a live rendering: all it depends on, except figures and the day."""
        where = self.base_url, self.root, self.at
        return self.request.method, self.without_body, *where, self.permissions, self.zone_name

    def _always(self) -> dict[str, Any]:
        reading = self.site.reading
        return {"now": reading.clock(), "redis_answers": reading.redis_answers()}

    def go(self, location: str, said: str) -> Response:
        """Redirect to another page, which shows `said`: what was done."""
        self.site.reading.forget()
        answer = RedirectResponse(location, 303)
        while len(quote(said)) > LONGEST_RESULT:
            said = f"{said[: len(said) * 3 // 4]}…"
        answer.set_cookie(RESULT, quote(said), max_age=60, path="/", httponly=True, samesite="lax")
        return answer


def _bare(value: Any) -> Any:
    if isinstance(value, Content):
        value = {"stopped": value.stopped} if value.stopped else value.value
    return jsonable_encoder(value, custom_encoder={bytes: repr})
