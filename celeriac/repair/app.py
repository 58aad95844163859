"""What sweeps need of the app, where their statements stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from celeriac.settings import Settings
from celeriac.store.connections import Database

#: Has the prompt ones of these roles looked at now.
Kick = Callable[[Iterable[str]], None]


class RepairApp(Protocol):
    """The database, and what says how long things are kept. No more: these modules are SQL first."""

    settings: Settings

    @property
    def database(self) -> Database: ...
    @property
    def backend(self) -> Any: ...
    def kick(self, roles: Iterable[str]) -> None: ...
