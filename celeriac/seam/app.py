"""What the seam needs of the app."""

from __future__ import annotations

from typing import Protocol

from celeriac.run.app import RunApp
from celeriac.seam.enqueuer import Enqueuer


class SeamApp(RunApp, Protocol):
    """Beside what runs need: where new rows go."""

    @property
    def enqueuer(self) -> Enqueuer: ...
