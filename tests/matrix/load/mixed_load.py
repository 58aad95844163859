"""What both releases run: its module lies in no package, so that each imports the engine of its own working tree.

`python mixed_load.py FIRST STEP RATE SECONDS` enqueues as well: the numbers FIRST, FIRST + STEP, …, RATE a second.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from sqlalchemy import Connection, create_engine, text

from celeriac import Celeriac

RELEASE = os.environ.get("MIXED_RELEASE", "")

BEGAN = text("INSERT INTO began VALUES (:n, :role, :attempt, :release)")
WRITTEN = text("INSERT INTO written VALUES (:n, :role, :release)")
ASKED = text("INSERT INTO asked VALUES (:n, :release, :id)")

app = Celeriac("mixed_load")
engine = create_engine(app.database_url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)


def note(task: Any, n: int) -> None:
    """At once, and once more with the outcome."""
    about = {"n": n, "role": task.name, "release": RELEASE}
    with engine.connect() as connection:
        connection.execute(BEGAN, about | {"attempt": task.request.retries})
    task.session.execute(WRITTEN, about)


@app.task(
    bind=True, role="first", name="first", fair_by="account", lock_by="store", max_retries=3, retry_backoff=1,
    autoretry_for=(ConnectionError,),
)  # fmt: skip
def first(self: Any, n: int, account: str, store: int) -> int:
    note(self, n)
    if n % 10 == 0 and not self.request.retries:
        raise ConnectionError("the first attempt of each tenth")
    second.delay(n)
    return n


@app.task(bind=True, role="second", name="second")
def second(self: Any, n: int) -> int:
    note(self, n)
    return n


def enqueue(first_number: int, step: int, rate: float, seconds: float) -> None:
    until, n = time.monotonic() + seconds, first_number
    with create_engine(app.database_url).connect() as connection:
        while time.monotonic() < until:
            with connection.begin():
                _ask(connection, n)
            n += step
            time.sleep(1 / rate)


def _ask(connection: Connection, n: int) -> None:
    """The task and the note of it in one commit. Each fifth is for later, and fifty stores take turns."""
    call = first.using(connection=connection, countdown=2 * (n % 5 == 0))
    made = call.delay(n, f"account {n % 3}", n % 50)
    connection.execute(ASKED, {"n": n, "release": RELEASE, "id": made.id})


if __name__ == "__main__":
    enqueue(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
