"""An application whose surroundings can be broken by rows of the table `outside`."""

from __future__ import annotations

import time

from sqlalchemy import text

from celeriac import Celeriac
from celeriac.schedules import enqueuing

OUTSIDE = "CREATE TABLE IF NOT EXISTS outside (what text)"

app = Celeriac("incidents")
app.schedules = [enqueuing("overlapping", 1, "report", enabled=False)]


class HTTPError(Exception):
    """An outside service's answer."""


def is_so(what: str) -> bool:
    with app.database.statement() as connection:
        return bool(connection.execute(text("SELECT FROM public.outside WHERE what = :what"), {"what": what}).all())


@app.task(
    shared=False, role="webhook", fair_by="account", autoretry_for=(HTTPError,), max_retries=50, retry_backoff=3600
)
def webhook(account: str = "") -> None:
    if is_so("down") or is_so(f"down for {account}"):
        raise HTTPError("503 for https://hooks.example/orders")
    if is_so("slow"):
        time.sleep(1.5)


@app.task(shared=False, role="poisoned", autoretry_for=(TypeError,), max_retries=50, retry_backoff=3600)
def poisoned() -> None:
    if is_so("poison"):
        raise TypeError("'NoneType' object is not iterable")


@app.task(shared=False, role="report", lock_by="key", chunk=1, stale_after=600, fair_by="account", max_retries=0)
def report(key: str | None = None, account: str = "") -> None:
    """Runs until nothing holds it up."""
    while is_so("hangs"):
        time.sleep(0.05)


@app.task(shared=False, role="leaks", max_retries=0)
def leaks() -> None:
    """Grows by half a gigabyte, and keeps it."""
    kept = bytearray(b"x") * 500_000_000
    while is_so("hangs"):
        time.sleep(0.05)
    del kept
