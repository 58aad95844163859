"""`python -m bench.commits`: how soon a task starts that was enqueued in Django's `atomic()`, beside a plain call's.

From before the commit, and from before the `.delay()`, to the handler's first line; one task at a time, in turn, in
`BENCH_ROUNDS` rounds. The median of each round, and their ratio.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

import django
from django.conf import settings
from django.db import connection, transaction
from sqlalchemy import make_url

from bench.__main__ import prepared, stamps, worker
from bench.size import rounds, sized

STARTS = sized(300, 20)

Next = Callable[[], tuple[str, float]]


def main() -> None:
    with prepared(), stamps() as next_stamp, worker("rows"):
        _set_up(os.environ["DATABASE_URL"])
        from bench.measured import stamp

        stamp.delay(time.time())
        next_stamp()
        for _ in range(rounds()):
            plain, committed = (median(of) for of in zip(*_pairs(stamp, next_stamp), strict=True))
            print(
                f".delay() {plain * 1000:.2f} ms, after the commit {committed * 1000:.2f} ms: {committed / plain:.2f}",
                flush=True,
            )


def _pairs(stamp: object, next_stamp: Next) -> list[tuple[float, float]]:
    return [(_plain(stamp, next_stamp), _committed(stamp, next_stamp)) for _ in range(STARTS)]


def _plain(stamp: object, next_stamp: Next) -> float:
    stamp.delay(time.time())  # type: ignore[attr-defined]
    return next_stamp()[1]


def _committed(stamp: object, next_stamp: Next) -> float:
    sent = time.time()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        stamp.delay(sent)  # type: ignore[attr-defined]
        before = time.time() - sent
    return next_stamp()[1] - before


def _set_up(database_url: str) -> None:
    url = make_url(database_url)
    host, port = (url.query.get(name) for name in ("host", "port"))
    settings.configure(
        INSTALLED_APPS=["celeriac.contrib.django"], CELERIAC_APP="bench.measured:rows", USE_TZ=True,
        DATABASES={"default": {
            "ENGINE": "django.db.backends.postgresql", "NAME": url.database, "USER": url.username,
            "PASSWORD": url.password or "", "HOST": url.host or host, "PORT": url.port or port,
        }},
    )  # fmt: skip
    django.setup()


if __name__ == "__main__":
    main()
