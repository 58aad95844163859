"""`python -m bench.pages`: what each page of the dashboard and each main list of the API takes and weighs.

Of a server in a process of its own, asked over HTTP by one client, each page read anew each time. `BENCH_ROWS` says
beside how many tasks (1,000,000): a quarter of them wait, one in fifty has failed.
"""

from __future__ import annotations

import gc
import gzip
import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from statistics import median, quantiles
from typing import NamedTuple

import uvicorn
from sqlalchemy import text

from bench.backlog import READY, fill_up
from bench.size import sized
from celeriac import Celeriac, Settings, local
from celeriac.api.server import create
from celeriac.dashboard import reading
from celeriac.dashboard.templates import TABS
from celeriac.local.valkey import free_port
from celeriac.operate import sessions, tokens
from celeriac.repair import minutes, sweep
from celeriac.store.connections import Database
from tests.processes import answers, until

ROWS, TIMES = sized(int(os.environ.get("BENCH_ROWS", 1_000_000)), 500), sized(40, 3)

#: What a page may take (ms, the 95th of 100) beside a million tasks and beside ten, and weigh (bytes on the wire): the
#: first of a cold browser with what belongs to it, and each after it.
TAKES, TAKES_OF_TEN_MILLION, FIRST, NEXT = 100.0, 150.0, 40_000, 15_000

HISTORY = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, started_at,
    completed_at, retry_count, tries, max_rounds, losses, created_at, error_message)
SELECT nextval('celeriac.tasks_id_seq'), 'past-' || i, 'build', lpad((i % 1000)::text, 6, '0'),
    CASE WHEN i % 50 = 0 THEN 'failed' ELSE 'completed' END, 0, now(), '[]', jsonb_build_object('store_id', i),
    at, at, 0, 0, 1, 0, now(),
    CASE WHEN i % 50 = 0 THEN 'HTTPError: 502 of store ' || i END
FROM generate_series(1, :rows) i, LATERAL (SELECT now() - (:rows - i) * interval '50 milliseconds' AS at) AS past"""
WORKERS = """
INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency, queues, resources)
SELECT 'celery@node-' || i, 'node-' || i, i, 8, '["build"]', '{"memory_percent": 60, "cpu_percent": 40}'
FROM generate_series(1, 20) i WHERE :rows > 0"""
PASSES = """
INSERT INTO celeriac.passes (role, by, free, claimants, given)
SELECT 'build', 'beat', 60, '[{"account": "000001", "waiting": 9}]', '{"000001": 9}'
FROM generate_series(1, 1000) i WHERE :rows > 0"""

#: Of the API, beside the pages.
LISTS = (
    "/api/tasks?limit=50", "/api/tasks?status=failed&limit=50", "/api/tasks?status=queued&role=build&limit=50",
    "/api/tasks/counts", "/api/tasks/capacity", "/api/roles", "/api/accounts", "/api/workers", "/api/locks",
    "/api/failures", "/api/shares", "/api/audit", "/api/tasks/metrics", "/api/admin/scheduled-jobs", "/api/bulk",
)  # fmt: skip


class Told(NamedTuple):
    """Of one address: seconds of each time, and bytes as they were sent."""

    seconds: list[float]
    bytes: int

    @property
    def p95(self) -> float:
        return quantiles(self.seconds, n=20, method="inclusive")[-1] * 1000


def main() -> None:
    with filled() as (app, token), serving(app, anew=True) as url:
        session = session_of(app, token)
        tell({path: measured(url + path, token, session) for path in (*pages(app.database), *LISTS)})


@contextmanager
def filled() -> Iterator[tuple[Celeriac, str]]:
    """An application with that many tasks, and a token that may see all."""
    with local.join_temporary() as stack:
        app = of(stack.database_url, stack.redis_url)
        past = {"rows": ROWS * 3 // 4}
        fill_up(app.database, [(READY, {"rows": ROWS // 4, "accounts": 1000}), (HISTORY, past), (WORKERS, past),
            (PASSES, past)])  # fmt: skip
        app.register_roles()
        count(app)
        with app.database.transaction() as connection:
            token = tokens.create(connection, "bench", ["admin"], by="bench")
        yield app, token
        app.database.dispose()


def count(app: Celeriac) -> None:
    """The minutes of the last hour, as a beat does."""
    minutes.LAG = -1.0  # nobody has to commit anything any more
    for _ in range(3):
        sweep(app, "minutes")


def of(database_url: str, redis_url: str) -> Celeriac:
    """Whoever measures asks more often than others may."""
    settings = Settings(database_url=database_url, redis_url=redis_url, api_requests=1e6)
    app = Celeriac("pages", settings=settings)
    app.task(build, name="build", role="build", window=60)
    return app


def build(store_id: int) -> int:
    return store_id


def pages(database: Database) -> list[str]:
    """Each of the navigation, and one of each kind behind it."""
    with database.statement() as connection:
        waiting = connection.execute(text("SELECT max(id) FROM celeriac.tasks")).scalar_one()
        failed = connection.execute(text("SELECT max(id) FROM celeriac.history WHERE status = 'failed'")).scalar_one()
        decision = connection.execute(text("SELECT max(id) FROM celeriac.passes")).scalar_one()
    behind = (
        f"tasks/{waiting}", f"tasks/{failed}", "tasks?state=failed", "tasks?error=502", "roles/build",
        "accounts/000001", "workers/celery@node-1", f"decisions/{decision}?role=build",
        "tasks/matching?move=retry&state=failed",
    )  # fmt: skip
    return [f"/admin/{path}" for path in (*(path for tab in TABS.values() for path, _, _ in tab), *behind)]


@contextmanager
def serving(app: Celeriac, *, anew: bool = False) -> Iterator[str]:
    """Its address. `anew`: nothing that was read serves a second request."""
    port = free_port()
    server = get_context("spawn").Process(target=serve, args=(app.database_url, app.redis_url, port, anew), daemon=True)
    server.start()
    try:
        until(lambda: not server.is_alive() or answers(f"http://127.0.0.1:{port}/healthz"), "the server to answer")
        assert server.is_alive(), f"the server has ended with {server.exitcode}"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.join()


def serve(database_url: str, redis_url: str, port: int, anew: bool) -> None:
    if anew:
        reading.SERVES, reading.TIMES = -1.0, 0.0
    api = create(of(database_url, redis_url))
    gc.collect()
    gc.freeze()  # as `celeriac serve` does
    uvicorn.run(api, port=port, log_level="warning", access_log=False, lifespan="off")


def session_of(app: Celeriac, token: str) -> str:
    """Of a browser that signed in with it."""
    with app.database.transaction() as connection:
        bearer = tokens.verify(connection, token)
        assert bearer is not None
        return sessions.begin(connection, bearer.id)


def measured(url: str, token: str, session: str) -> Told:
    """One more time than is told: the first one compiles templates."""
    asked = urllib.request.Request(url, headers={
        "Accept-Encoding": "gzip", "Cookie": f"celeriac={session}", "Authorization": f"Bearer {token}",
    })  # fmt: skip
    seconds, body = [], b""
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        with urllib.request.urlopen(asked) as answer:
            body, is_packed = answer.read(), answer.headers["Content-Encoding"] == "gzip"
        seconds.append(time.perf_counter() - began)
    assert b"was stopped" not in (gzip.decompress(body) if is_packed else body), f"{url}: an insight took over 2 s"
    return Told(seconds[1:], len(body))


def tell(found: dict[str, Told]) -> None:
    takes = TAKES if ROWS <= 1_000_000 else TAKES_OF_TEN_MILLION
    print(f"\n{f'{ROWS:,} tasks':44}{'p50 ms':>9}{'p95 ms':>9}{'of':>6}{'bytes':>9}{'of':>8}")
    for path, told in found.items():
        bytes_of = NEXT if path.startswith("/admin/") else None
        over = " over" if told.p95 > takes or (bytes_of is not None and told.bytes > bytes_of) else ""
        limit = "" if bytes_of is None else f"{bytes_of:,}"
        print(f"{path:44}{median(told.seconds) * 1000:9.1f}{told.p95:9.1f}{takes:6.0f}{told.bytes:9,}{limit:>8}{over}")
    static = first_page(found["/admin/overview"].bytes)
    print(f"{'the first page of a cold browser':68}{static:9,}{FIRST:>8,}{' over' if static > FIRST else ''}")


def first_page(overview: int) -> int:
    """With the style sheet and the module, as they are sent."""
    from importlib.resources import files

    static = files("celeriac.dashboard") / "static"
    return overview + sum(len(gzip.compress(file.read_bytes(), 6)) for file in static.iterdir() if file.is_file())


if __name__ == "__main__":
    main()
