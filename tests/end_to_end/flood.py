"""A role with nothing set but whose work it is: for the tests of what a newcomer waits for by default."""

from __future__ import annotations

import time

from celeriac import Celeriac

app = Celeriac("flood")


@app.task(shared=False, role="call", fair_by="account")
def call(account: str, seconds: float) -> None:
    """Waits as a call of somebody's server does."""
    time.sleep(seconds)


@app.task(shared=False, role="batch", fair_by="account", prompt=False)
def batch(account: str, seconds: float) -> None:
    """The same, dispatched by beat alone."""
    time.sleep(seconds)


@app.task(shared=False, role="often", fair_by="account", prompt=False, every=2)
def often(account: str, seconds: float) -> None:
    """The same, every two seconds."""
    time.sleep(seconds)
