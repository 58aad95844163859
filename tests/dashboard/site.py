"""A running dashboard in this process, and what its pages have to show."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx
import uvicorn

from celeriac import Celeriac, Settings
from celeriac.api.server import create
from celeriac.local.valkey import free_port
from celeriac.operate import tokens
from celeriac.store.connections import Database
from tests.api.server import client, signed_in
from tests.api.works import task
from tests.processes import Rows, until

#: What nobody may get to run by putting it where text is shown.
EVIL = "<img src=x onerror=alert(1)>"


class Served:
    """The server, which outlasts the tests' databases."""

    def __init__(self, redis_url: str) -> None:
        settings = Settings(database_url="postgresql://nobody@localhost/none", redis_url=redis_url)
        self.app = Celeriac("dashboard", settings=settings, set_as_current=False)
        declare(self.app)
        self.port = free_port()
        self.api = create(self.app)
        self.api.middleware_stack = self.api.build_middleware_stack()
        config = uvicorn.Config(self.api, port=self.port, log_level="warning", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def start(self) -> None:
        self.thread.start()
        until(lambda: self.server.started, "the dashboard to listen")

    @property
    def state(self) -> Any:
        """What the dashboard's application shares among its pages."""
        loaded: Any = self.api.middleware_stack
        while not hasattr(loaded, "dashboard"):
            loaded = loaded.app
        return loaded.dashboard.app.app.state

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.app.publisher.close()


def declare(app: Celeriac) -> None:
    @app.task(shared=False, role="crawl", fair_by="account_id", window=60)
    def crawl(store_id: int, account_id: int = 0) -> int:
        return store_id

    @app.task(shared=False, role="resync")
    def resync(store_id: int) -> int:
        return store_id


class Site:
    """`get("tasks")` and `post("tasks/7/retry", why="…")`, as whoever has this scope."""

    def __init__(self, served: Served, database_url: str) -> None:
        self.app, self.rows = served.app, Rows(database_url)
        self.database = Database(database_url, pool_size=20)
        self.reading = served.state.site.reading
        self.show()
        self.app.register_roles()
        self.host = f"127.0.0.1:{served.port}"
        self.url = f"http://{self.host}/admin"
        self.tokens = {scope: self.token(scope, scope) for scope in ("read", "operate", "admin")}
        self.sessions: dict[str, str] = {}
        self.ids: dict[str, int] = {}
        self.http = client(self.url)

    def show(self) -> None:
        """From here on the server looks at this one's database."""
        self.app.__dict__["database"] = self.database
        for made_of_another in ("by_name", "clocks", "enqueuer"):
            self.app.__dict__.pop(made_of_another, None)
        self.reading.forget()

    def close(self) -> None:
        self.http.close()
        self.rows.close()
        self.database.dispose()

    def token(self, name: str, *scopes: str) -> str:
        with self.database.transaction() as connection:
            return tokens.create(connection, name, scopes, by="test")

    def session(self, scope: str) -> str:
        """Of whoever has signed in with that token."""
        if scope not in self.sessions:
            self.sessions[scope] = signed_in(self.database, self.tokens[scope])
        return self.sessions[scope]

    def ask(self, method: str, path: str, scope: str | None = "admin", **given: Any) -> httpx.Response:
        headers = {"Cookie": f"celeriac={self.session(scope)}"} if scope else {}
        address = self.url + (f"/{path}" if path else "")
        return self.http.request(method, address, headers=headers | given.pop("headers", {}), **given)

    def get(self, path: str, scope: str | None = "read", **given: Any) -> httpx.Response:
        return self.ask("GET", path, scope, **given)

    def html(self, path: str, scope: str = "admin") -> str:
        answer = self.get(path, scope)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:2000]}"
        return answer.text

    def post(self, path: str, scope: str | None = "operate", /, **fields: Any) -> httpx.Response:
        return self.ask("POST", path, scope, data=fields, headers={"Sec-Fetch-Site": "same-origin"})

    def told(self, path: str, /, **fields: Any) -> str:
        """What the next page says a button did."""
        answer = self.post(path, **fields)
        assert answer.status_code == 303, f"{path}: {answer.status_code} {answer.text[:2000]}"
        cookie = answer.headers["set-cookie"].partition(";")[0]
        following = httpx.URL(str(answer.request.url)).join(answer.headers["location"])
        page = self.http.get(following, headers={"Cookie": f"celeriac={self.session('operate')}; {cookie}"})
        said = page.text.partition('<p class="told" role="status">')[2].partition("</p>")[0]
        assert said, page.text[:3000]
        return said

    @contextmanager
    def locked(self, *tables: str) -> Iterator[None]:
        """Whoever reads one of these waits."""
        with self.rows.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            for table in tables:
                connection.exec_driver_sql(f"LOCK TABLE celeriac.{table} IN ACCESS EXCLUSIVE MODE")
            yield
            connection.exec_driver_sql("ROLLBACK")


def looked(site: Site, ago: float = 0, *unread: str) -> None:
    """So long ago (seconds) the last look at what is watched came about."""
    site.rows(
        """INSERT INTO celeriac.repairs (name, at, ended_at, unread)
        VALUES ('alerts', now(), now() - :ago * interval '1 second', CAST(:unread AS text[]))
        ON CONFLICT (name) DO UPDATE SET ended_at = excluded.ended_at, unread = excluded.unread""",
        ago=ago, unread=list(unread),
    )  # fmt: skip


def worker(site: Site, name: str = "celery@node-7:12", *, memory: float = 65.0, **more: Any) -> None:
    resources = {"memory_percent": memory, "cpu_percent": 45.0, "is_backing_off": False, "backoff_reason": None}
    given = {"status": "active", "resources": {}, "concurrency": 3, "ago": 0, "version": None} | more
    site.rows(
        """INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency, status, resources, version,
            last_heartbeat_at)
        VALUES (:name, 'node-7', 12, '["crawl"]', :concurrency, :status, CAST(:resources AS jsonb), :version,
            now() - :ago * interval '1 second')""",
        name=name, **given | {"resources": json.dumps(resources | given["resources"])},
    )  # fmt: skip


def furnish(site: Site) -> dict[str, int]:
    """Something of everything, with markup wherever others choose the text; the ids of tasks by their status."""
    worker(site, EVIL, resources={"is_backing_off": True, "backoff_reason": EVIL})
    site.rows(
        """INSERT INTO celeriac.worker_samples
        SELECT :evil, now() - i * interval '1 minute', i, 100 - i, CASE WHEN i % 9 = 0 THEN :evil END
        FROM generate_series(0, 59) i""",
        evil=EVIL,
    )
    made = {
        status: task(site, status, role, account=EVIL, lock_key=f"lock:{status}:{EVIL}", priority=7,
                     unique_key=f"unique:{status}:{EVIL}")
        for status, role in (
            ("pending", "crawl"), ("claimed", "crawl"), ("running", EVIL), ("completed", "crawl"), ("failed", "crawl"),
            ("cancelled", "resync"),
        )
    }  # fmt: skip
    site.rows("UPDATE celeriac.history SET error_message = :evil, args = CAST(:args AS jsonb) WHERE status = 'failed'",
              evil=f"ValueError: {EVIL}", args=f'["{EVIL}", 9007199254740993]')  # fmt: skip
    site.rows("UPDATE celeriac.tickets SET worker_id = :evil WHERE worker_id IS NOT NULL", evil=EVIL)
    claimants = f'[{{"account": "{EVIL}", "waiting": 3}}, {{"account": "b", "waiting": 1, "cap": 1}}]'
    site.rows(
        """INSERT INTO celeriac.passes (role, by, free, claimants, given, took_ms)
        VALUES ('crawl', :evil, 3, CAST(:claimants AS jsonb), CAST(:given AS jsonb), 4.5)""",
        evil=EVIL, claimants=claimants, given=f'{{"{EVIL}": 2, "b": 1}}',
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kind, description, last_report)
        VALUES (:name, 'crawl', '@daily', 'task', :evil, NULL),
            ('rescue', 'rescue', '@every 30s', 'sweep', NULL, '3')""",
        name=f"nightly {EVIL}", evil=EVIL,
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.ticks (schedule, due_at, task_id, left_out, why)
        SELECT s.id, now() - i * interval '1 minute', CASE WHEN i % 3 > 0 THEN task_id END,
            CASE WHEN i % 3 > 0 THEN 0 ELSE 2 END, CASE WHEN i % 3 = 0 THEN :evil END
        FROM celeriac.scheduled_jobs s, generate_series(1, 70) i,
            LATERAL (SELECT task_id FROM worker_tasks ORDER BY id LIMIT 1 OFFSET i % 6) AS t WHERE kind = 'task'""",
        evil=EVIL,
    )  # fmt: skip
    site.rows("INSERT INTO celeriac.beats (beat_id, hostname, pid) VALUES ('b', :evil, 3)", evil=EVIL)
    site.rows("INSERT INTO celeriac.alerts (name, subject, value, threshold) VALUES ('queue_depth', :e, 2, 1)", e=EVIL)
    site.rows("INSERT INTO celeriac.account_policies (account, weight) VALUES (:evil, 2)", evil=EVIL)
    site.rows(
        "INSERT INTO celeriac.audit (by, action, kind, target, why) VALUES (:evil, 'retry', 'task', :evil, :evil)",
        evil=EVIL,
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.bulk_actions (move, filter, upto, until, by, why, state, asked, skipped, skips, trouble,
            created_at, moving_since, ended_at)
        VALUES ('retry', CAST(:filter AS jsonb), 1, now(), :evil, :evil, 'stopped', 2, 1, CAST(:skips AS jsonb), :evil,
            now(), now(), now())""",
        evil=EVIL, filter=json.dumps({"account": EVIL}), skips=json.dumps([{"id": 7, "reason": EVIL}]),
    )  # fmt: skip
    site.rows(
        """INSERT INTO celeriac.dead_letters (digest, name, sender, reason, size, message, args)
        VALUES (sha256('x'), :evil, :evil, :evil, 1, 'x', CAST(:args AS jsonb))""",
        evil=EVIL, args=f'["{EVIL}"]',
    )  # fmt: skip
    barrier = str(uuid4())
    for n, status in enumerate(("completed", "cancelled", "running", "pending")):
        task(site, status, "crawl", workflow=EVIL, barrier=barrier, place=n, account="chord")
    site.rows(
        """INSERT INTO worker_tasks (task_id, role, workflow, headers, waits_for)
        VALUES ('the body', 'resync', :evil, CAST(:headers AS jsonb), 'members')""",
        evil=EVIL, headers=json.dumps({"canvas": {"awaits": barrier}}),
    )  # fmt: skip
    site.rows("UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())")
    site.rows("""INSERT INTO celeriac.minutes (role, minute, enqueued, completed, failed, waits, runs)
        SELECT 'crawl', until - i * interval '1 minute', i % 7, i % 5, i % 3, ARRAY[1, 2], ARRAY[0, 3]
        FROM celeriac.minutes_until, generate_series(1, 60) i""")
    return made
