"""The templates' environment: it escapes every value, and an undefined name is an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from celeriac.dashboard import charts, columns, health, words
from celeriac.dashboard.guard import role_of
from celeriac.insights import ARGUMENT
from celeriac.insights.tasks import exports
from celeriac.store.states import ALL

#: The tabs, in the order in which one reads during an incident, each with its pages: path, word, key after `g`.
TABS: Final = {
    "Now": (("overview", "Overview", "o"),),
    "Tasks": (
        ("tasks", "Tasks", "t"), ("bulk", "Bulk", "b"), ("workflows", "Workflows", ""),
        ("dead-letters", "Dead letters", ""),
    ),
    "Who": (("accounts", "Accounts", "a"), ("locks", "Locks", "l"), ("unique-keys", "Unique keys", "")),
    "Fleet": (
        ("roles", "Roles", "r"), ("workers", "Workers", "w"), ("schedules", "Schedules", "s"),
        ("capacity", "Capacity", "c"),
    ),
    "Record": (
        ("failures", "Failures", "f"), ("decisions", "Decisions", "d"), ("alerts", "Alerts", ""),
        ("audit", "Audit", ""), ("system", "System", ""),
    ),
}  # fmt: skip

#: For pages that are in no tab, by the first part of the path: the page whose tab is marked instead.
BELONGS: Final = {
    "new-task": "tasks", "go": "tasks", "retry-failures": "failures", "new-schedule": "schedules",
    "edit-schedule": "schedules",
}  # fmt: skip

#: Maximum seconds between the reads of one page, the clock's included. A time that is less than so far ahead is shown
#: as past. `live.js` has the same constant.
APART = 1.5


def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("celeriac.dashboard", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters |= {
        "ago": ago, "lasting": lasting, "when": when, "took": words.took, "figure": words.figure, "exact": words.exact,
        "mean": words.mean, "first_line": words.first_line, "rate": words.rate, "tojson_text": words.compact,
        "code": code,
    }  # fmt: skip
    made.globals |= {
        "fragment": fragment,
        "words": words,
        "argument": ARGUMENT,
        "charts": charts,
        "columns": columns,
        "tabs": TABS,
        "tab_of": tab_of,
        "belongs": BELONGS,
        "states": ALL,
        "most_exported": exports.MOST,
        "role_of": role_of,
        "health_means": health.MEANS,
    }
    return made


def tab_of(path: str) -> str:
    """Return a page's tab; empty if it has none."""
    return next((tab for tab, pages in TABS.items() if path in (at for at, _, _ in pages)), "")


@pass_context
def fragment(context: Context, name: str, macro: Callable[..., Markup], *of: Any) -> Markup:
    """Render a macro, or reuse its last rendering in this place of the page if the arguments are the same. It may show
    only its arguments, ages, and values common to a view.
    """
    made: Markup = context["fragments"].get(name, of, macro)
    return made


def code(text: str) -> Markup:
    """Render a text with commands in backticks."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(one) if n % 2 else one for n, one in enumerate(parts))


@pass_context
def ago(context: Context, at: datetime | None) -> Any:
    """Render how long ago an instant was, or in how long it will be; the page's script keeps that current."""
    if at is None:
        return words.NONE
    seconds = (context["now"] - at).total_seconds()
    has_been = seconds > -APART
    text = words.took(math.floor(max(seconds, 0))) if has_been else f"in {words.took(math.ceil(-seconds))}"
    return _time(context, at, text, " data-ago")


@pass_context
def lasting(context: Context, seconds: float | None) -> Any:
    """Render how long something has lasted, rounded to the second, so that two readings of it agree."""
    if seconds is None:
        return words.NONE
    since = context["now"] - timedelta(seconds=seconds - 0.5)
    return ago(context, since.replace(microsecond=0))


@pass_context
def when(context: Context, at: datetime | None) -> Any:
    """Render the time of day, with the date unless that is today."""
    if at is None:
        return words.NONE
    zone = context["page"].zone
    local, today = at.astimezone(zone), context["now"].astimezone(zone).date()
    text = local.strftime("%H:%M:%S" if local.date() == today else "%d %b %Y %H:%M:%S")
    return _time(context, at, text)


def _time(context: Context, at: datetime, text: str, ticks: str = "") -> Markup:
    """Render `text`, which stands for an instant; a tooltip shows its date, time and zone."""
    local = at.astimezone(context["page"].zone)
    in_full = escape(f"{local.isoformat(' ')[:19]} {local.tzname()}")
    return Markup(f'<time datetime="{words.iso(at)}" title="{in_full}"{ticks}>{text}</time>')  # noqa: S704
