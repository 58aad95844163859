"""Keeps tasks out of `dumpdata` and `loaddata`: a row that is loaded would be a task that runs."""

from __future__ import annotations

from typing import Any


class OnlyRead:
    """A router for the models of this app alone; asked before the project's own."""

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:  # noqa: ARG002 - Django's signature
        return False if app_label == "celeriac" else None
