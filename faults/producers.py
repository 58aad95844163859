"""`python -m faults.producers`: the load, in every way there is to ask for a task; what was acknowledged is noted.

A line on its input says how many calls a second there are from then on; 0: none, and `resting` is printed once none is
under way. Without a number it ends.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
from celery import Celery, chain, chord
from celery.utils import uuid
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import Session

from faults.app import app, flaky, link, locked, pen, quick, single, writes
from faults.keys import ACCOUNTS, LOCKS, UNIQUES
from faults.ledger import ACCEPTED, REFUSED, ROLLED_BACK
from faults.pace import Way

#: Calls of a bulk.
BULK = 10

#: Seconds an HTTP request may take.
PATIENCE = 15

accounts = itertools.cycle(f"account {n}" for n in range(ACCOUNTS))
chance = random.Random(11)


def accepted(task_id: str, **more: object) -> None:
    pen.write(ACCEPTED, id=task_id, **more)


def one() -> None:
    accepted(quick.delay(next(accounts)).id)


def bulk() -> None:
    for result in quick.bulk([(next(accounts),) for _ in range(BULK)]):
        accepted(result.id)


def with_lock() -> None:
    accepted(locked.delay(f"{chance.randrange(LOCKS)}").id)


def with_unique_key() -> None:
    """Twice at once, as from two processes: one of them is the other's task."""
    key = f"{chance.randrange(UNIQUES)}"
    result = single.delay(key)
    accepted(result.id, key=f"unique {key}", is_new=result.is_new)


def that_fails_once() -> None:
    accepted(flaky.delay().id)


def that_writes() -> None:
    accepted(writes.delay().id)


_engine = create_engine(make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg2"), pool_pre_ping=True)


def in_a_session() -> None:
    """Half of them roll back."""
    with Session(_engine) as session:
        results = [quick.using(session=session).delay(next(accounts)), locked.using(session=session).delay("0")]
        if chance.random() < 0.5:
            session.rollback()
            for result in results:
                pen.write(ROLLED_BACK, id=result.id)
            return
        session.commit()
    for result in results:
        accepted(result.id)


_sql: Any = None


def in_sql() -> None:
    global _sql
    try:
        if _sql is None:
            _sql = psycopg2.connect(os.environ["DATABASE_URL"])
            _sql.autocommit = True
        with _sql.cursor() as cursor:
            said = json.dumps({"account": next(accounts)})
            cursor.execute("SELECT task_id FROM celeriac.enqueue('quick', %s::jsonb)", [said])
            accepted(cursor.fetchone()[0])
    except psycopg2.Error:
        broken, _sql = _sql, None
        if broken is not None:
            broken.close()
        raise


def over_http() -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{os.environ['FAULTS_API_PORT']}/api/tasks",
        json.dumps({"role": "quick", "kwargs": {"account": next(accounts)}}).encode(),
        {"Authorization": f"Bearer {os.environ['FAULTS_TOKEN']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        accepted(json.load(answer)["task_id"], way="http")


_plain = Celery("plain", broker=os.environ["REDIS_URL"], set_as_current=False)
_plain.conf.broker_transport_options = {"socket_timeout": 2, "socket_connect_timeout": 2, "max_retries": 0}


def by_plain_celery() -> None:
    task_id = uuid()
    _plain.send_task("adopted", task_id=task_id, retry=False)
    accepted(task_id, way="plain")


def in_a_canvas() -> None:
    if chance.random() < 0.5:
        result = chain(link.s(), link.s(), link.s())()
        while result is not None:
            accepted(result.id)
            result = result.parent
    else:
        body = chord([link.s() for _ in range(4)])(link.s())
        accepted(body.id)
        for member in body.parent.results:
            accepted(member.id)


#: Each way, its share of all calls, and how many threads go it.
WAYS: list[tuple[Callable[[], None], float, int]] = [
    (one, 0.32, 1),
    (bulk, 0.03, 1),
    (with_lock, 0.14, 1),
    (with_unique_key, 0.14, 2),
    (that_fails_once, 0.04, 1),
    (that_writes, 0.1, 1),
    (in_a_session, 0.06, 1),
    (in_sql, 0.08, 1),
    (by_plain_celery, 0.06, 1),
    (in_a_canvas, 0.03, 1),
]
HTTP: tuple[Callable[[], None], float, int] = (over_http, 0.05, 1)


def refused(way: str, error: Exception) -> None:
    pen.write(REFUSED, way=way, error=f"{type(error).__name__}: {str(error)[:150]}")


def ways() -> Iterator[Way]:
    for call, share, threads in [*WAYS, *([HTTP] if os.environ.get("FAULTS_HTTP") else [])]:
        for _ in range(threads):
            yield Way(call, share / threads, refused)


def main() -> None:
    app.register_roles()
    going = list(ways())
    for way in going:
        way.start()
    for line in sys.stdin:
        rate = float(line)
        for way in going:
            way.go(rate)
        if not rate:
            for way in going:
                way.is_resting.wait()
        print("resting" if not rate else "going", flush=True)


if __name__ == "__main__":
    main()
