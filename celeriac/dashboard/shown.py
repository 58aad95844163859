"""Renderings: one for all viewers of the same view, as long as its figures are the same."""

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

#: Maximum number of views whose last rendering is kept.
MOST = 100

#: Parts that change every second; if only these have changed, no new page is sent.
_TICKS = re.compile(r"(<time[^>]*>)[^<]*")
_CLOCK = re.compile(r"<time data-clock[^>]*>")


#: A fragment's arguments, and its rendering.
Fragment = tuple[tuple[Any, ...], Markup]

#: The level of compression, 1 to 9: a higher one takes longer than it saves on the wire.
PACKED = 5


@dataclass(frozen=True)
class Rendered:
    """A rendering. `tag`: a digest of everything but the time. `of`: its figures. `fragments`: its parts."""

    html: str
    tag: str
    of: tuple[Any, ...] = ()
    fragments: Mapping[str, Fragment] = field(default_factory=dict)

    @cached_property
    def packed(self) -> bytes:
        """The page as gzip, for all who accept it."""
        return gzip.compress(self.html.encode(), PACKED)


class Fragments:
    """The fragments of a rendering, such as the rows of a table. A fragment is reused from the view's last rendering if
    its content is the same. Its ages are then the former ones, which the page's script keeps current.
    """

    def __init__(self, last: Mapping[str, Fragment] = MappingProxyType({})) -> None:
        self._last = last
        self.made: dict[str, Fragment] = {}

    def get(self, name: str, of: tuple[Any, ...], make: Callable[..., Markup]) -> Markup:
        """Return a fragment. `name`: unique within its page; `of`: the arguments of `make`, all that it shows."""
        last = self._last.get(name)
        self.made[name] = fragment = last if last and _are_the_same(last[0], of) else (of, make(*of))
        return fragment[1]


class Shown:
    """The last rendering of each view, valid while its figures are the same."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Rendered] = {}

    def get(self, view: Hashable, figures: Mapping[str, Any], render: Callable[[Fragments], str]) -> Rendered:
        """Return the rendering. `view`: all it depends on except the figures; nothing of a single viewer."""
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
    still = _TICKS.sub(r"\1", _CLOCK.sub("<time>", html))
    return Rendered(html, f'"{hashlib.sha256(still.encode()).hexdigest()[:32]}"', of, fragments)


def _bare(value: Any) -> Any:
    """Return a content's value, or why it was stopped: `Reading` shares that, and wraps it anew for each caller."""
    return value.stopped or value.value if isinstance(value, Content) else value


def _are_the_same(some: Any, other: Any) -> bool:
    """Return whether both are the same object or consist of the same objects; texts and numbers may just be equal."""
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
