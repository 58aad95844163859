"""The parts of the app that sweeps use, if their statements are in the same module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from celeriac.settings import Settings
from celeriac.store.connections import Database

#: Sends a wake-up for those of these roles that are prompt.
Kick = Callable[[Iterable[str]], None]


class RepairApp(Protocol):
    """The app as sweeps see it: the database, and how long things are kept. No more: these modules are mostly SQL."""

    settings: Settings

    @property
    def database(self) -> Database: ...
    @property
    def backend(self) -> Any: ...
    def kick(self, roles: Iterable[str]) -> None: ...
