"""What was rendered: for all who look at the same view of the same figures, once."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from celeriac.dashboard.reading import Content

#: Views whose last rendering is kept at once.
MOST = 100

#: What of a page changes with every second: it is not worth an answer.
_TICKS = re.compile(r"(<time[^>]*>)[^<]*")
_CLOCK = re.compile(r"<time data-clock[^>]*>")


#: What a fragment shows, and what was made of it.
Fragment = tuple[tuple[Any, ...], Markup]

#: How hard a page is packed, 1 to 9: beyond it takes longer than it saves on the wire.
PACKED = 5


@dataclass(frozen=True)
class Rendered:
    """`tag`: of all but the time. `of`: the figures it shows. `fragments`: what it is put together of."""

    html: str
    tag: str
    of: tuple[Any, ...] = ()
    fragments: Mapping[str, Fragment] = field(default_factory=dict)

    @cached_property
    def packed(self) -> bytes:
        """As gzip, for all who take it so."""
        return gzip.compress(self.html.encode(), PACKED)


class Fragments:
    """Of a rendering, such as the rows of a table: what shows the very same as it did in the last rendering of the same
    view is not made anew. Ages in it are then those of its making, which the browser goes on counting.
    """

    def __init__(self, last: Mapping[str, Fragment] = MappingProxyType({})) -> None:
        self._last = last
        self.made: dict[str, Fragment] = {}

    def get(self, name: str, of: tuple[Any, ...], make: Callable[..., Markup]) -> Markup:
        """`name`: which fragment, unique within its page; `of`: all that `make` shows, its arguments."""
        last = self._last.get(name)
        self.made[name] = fragment = last if last and _are_the_same(last[0], of) else (of, make(*of))
        return fragment[1]


class Shown:
    """The last rendering of each view, as long as it is asked for with the very same figures."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Rendered] = {}

    def get(self, view: Hashable, figures: Mapping[str, Any], render: Callable[[Fragments], str]) -> Rendered:
        """`view`: all that the rendering depends on but the figures; nothing in it may be the viewer's own."""
        of = tuple(_bare(value) for value in figures.values())
        last = self._last.get(view)
        if last is None or not _are_the_same(last.of, of):
            fragments = Fragments(last.fragments) if last else Fragments()
            last = rendered(render(fragments), of, fragments.made)
            if len(self._last) >= MOST:
                self._last = {}
            self._last[view] = last
        return last


def rendered(html: str, of: tuple[Any, ...] = (), fragments: Mapping[str, Fragment] = MappingProxyType({})) -> Rendered:
    return Rendered(html, f'"{hashlib.sha256(_still(html).encode()).hexdigest()[:32]}"', of, fragments)


def _bare(value: Any) -> Any:
    """What `Reading` shares: it wraps it anew for each who asks."""
    return value.stopped or value.value if isinstance(value, Content) else value


def _are_the_same(some: Any, other: Any) -> bool:
    """The very same thing, which a reading serves for a moment, or made of the very same; text and numbers may merely
    be equal.
    """
    if some is other:
        return True
    if type(some) is not type(other):
        return False
    if isinstance(some, list | tuple):
        return len(some) == len(other) and all(map(_are_the_same, some, other))
    if isinstance(some, dict):
        return some.keys() == other.keys() and all(_are_the_same(value, other[key]) for key, value in some.items())
    if is_dataclass(some):
        return all(_are_the_same(getattr(some, one.name), getattr(other, one.name)) for one in fields(some))
    return isinstance(some, str | int | float | datetime) and bool(some == other)


def _still(html: str) -> str:
    return _TICKS.sub(r"\1", _CLOCK.sub("<time>", html))
