"""Whether this container does its work, for health checks: exit status 0 or 1, and why.

    python deploy/health.py worker QUEUE     this host's worker of that queue has sent a heartbeat lately
    python deploy/health.py beat             this host's beat has ticked lately
    python deploy/health.py http PORT PATH   the server here answers

It reads what the processes leave in Postgres and imports little: `celery inspect` would cost a second of CPU each time.
"""

from __future__ import annotations

import os
import socket
import sys
import urllib.request

import psycopg2
from sqlalchemy import make_url
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

#: Heartbeats come every HEARTBEAT_INTERVAL_MS, 30 seconds; this many may be missed.
MISSED = 3

WORKER = """
SELECT count(*) > 0 FROM celeriac.workers
WHERE hostname = %s AND queues ? %s AND status = 'active'
    AND last_heartbeat_at > now() - %s * interval '1 second'
"""

#: Seconds since a beat's last tick; it ticks each second.
LATE = 60
BEAT = "SELECT count(*) > 0 FROM celeriac.beats WHERE hostname = %s AND last_tick_at > now() - %s * interval '1 second'"


def worker(queue: str) -> bool:
    interval = float(os.environ.get("HEARTBEAT_INTERVAL_MS") or 30_000) / 1000
    return _holds(WORKER, socket.gethostname(), queue, MISSED * interval)


def beat() -> bool:
    return _holds(BEAT, socket.gethostname(), LATE)


def http(port: str, path: str) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return bool(answer.status == 200)


def _holds(condition: str, *given: object) -> bool:
    address = make_url(os.environ["DATABASE_URL"])
    _, how = PGDialect_psycopg2().create_connect_args(address)  # several hosts, too
    connection = psycopg2.connect(**how, connect_timeout=5)
    try:
        with connection.cursor() as cursor:
            cursor.execute(condition, given)
            return bool(cursor.fetchone()[0])
    finally:
        connection.close()


def main(what: str, *given: str) -> int:
    try:
        healthy = {"worker": worker, "beat": beat, "http": http}[what](*given)
    except (OSError, psycopg2.Error) as error:
        print(f"{what}: {error}")
        return 1
    print(f"{what}: {'healthy' if healthy else 'not healthy'}")
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
