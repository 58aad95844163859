"""An app for tests of beat. What is to run when stands in `times.py`, in a folder of the test's own."""

from __future__ import annotations

import times  # type: ignore[import-not-found]

from celeriac import Celeriac

app = Celeriac("clockwork", schedules=times.SCHEDULES)


@app.task(shared=False, role="tock", prompt=True, every=1)
def tock() -> None:
    """Nobody runs it; its passes and kicks keep Redis in the game."""
