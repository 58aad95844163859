"""A running API: `celeriac serve` as a process of its own, asked over HTTP, with its rows in sight."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any

import httpx
import psutil

from celeriac.local.valkey import free_port
from celeriac.operate import sessions, tokens
from celeriac.operate.allowed import Allowed
from celeriac.store.connections import Database
from tests.processes import ROOT, Rows, process, until

#: No test may meet a limit it does not test, nor alerts come and go by themselves.
UNLIMITED = {
    "CELERIAC_API_REQUESTS_PER_SECOND": "100000", "CELERIAC_API_FAILURES_PER_MINUTE": "1000000",
    "CELERIAC_SWEEP_INTERVAL_MS": "3600000",
}  # fmt: skip


class Api:
    """`get("/api/tasks")` and so on ask with the right of `scope`, admin unless another is named."""

    server: psutil.Process

    def __init__(self, url: str, database_url: str) -> None:
        self.url = url
        self.database, self.rows = Database(database_url), Rows(database_url)
        self.called: list[tuple[str, str]] = []
        self.http = client(url, event_hooks={"response": [self._remember]})
        self.tokens = {scope: self.token(f"{scope} {url}", scope) for scope in tokens.IMPLIED}

    def close(self) -> None:
        self.http.close()
        self.rows.close()
        self.database.dispose()

    def _remember(self, answer: httpx.Response) -> None:
        """What was asked and answered well."""
        if answer.is_success:
            self.called.append((answer.request.method, answer.request.url.path))

    def token(self, name: str, *scopes: str, **limited: Any) -> str:
        with self.database.transaction() as connection:
            return tokens.create(connection, name, scopes, by="test", allowed=Allowed.of(**limited))

    def session(self, scope: str = "admin") -> str:
        """Of the dashboard: what the browser has of whoever signed in with that token."""
        return signed_in(self.database, self.tokens[scope])

    def ask(self, method: str, path: str, *, scope: str = "admin", **given: Any) -> httpx.Response:
        return self.ask_with(self.tokens[scope], method, path, **given)

    def ask_with(self, token: str | None, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.http.request(method, path, headers=headers | given.pop("headers", {}), **given)

    def get(self, path: str, **given: Any) -> Any:
        return _fine(self.ask("GET", path, **given))

    def post(self, path: str, body: Any = None, **given: Any) -> Any:
        return _fine(self.ask("POST", path, json={} if body is None else body, **given))

    def put(self, path: str, body: Any, **given: Any) -> Any:
        return _fine(self.ask("PUT", path, json=body, **given))

    def delete(self, path: str, **given: Any) -> Any:
        return _fine(self.ask("DELETE", path, **given))

    def refused(self, status: int, method: str, path: str, **given: Any) -> dict[str, Any]:
        """The problem document of a request that is refused with this status."""
        answer = self.ask(method, path, **given)
        return problem(answer, status)


def client(url: str, **more: Any) -> httpx.Client:
    """Return one that tests may share: it keeps no cookies. Certificates it does not check, as to read authorities
    takes a while.
    """
    kept = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    return httpx.Client(base_url=url, timeout=30, verify=False, cookies=kept, **more)


def signed_in(database: Database, token: str) -> str:
    """The session of a browser that signed in with that token."""
    with database.transaction() as connection:
        bearer = tokens.verify(connection, token)
        assert bearer is not None
        return sessions.begin(connection, bearer.id)


def _fine(answer: httpx.Response) -> Any:
    assert answer.is_success, f"{answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, f"{answer.status_code} {answer.text}"
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    return document


@contextmanager
def serving(
    database_url: str, redis_url: str, log: Path, *, app: str = "tasks", files: int | None = None, **environ: str
) -> Iterator[Api]:
    """A server on a port of its own, once it is ready. `files`: how many it may have open."""
    port = free_port()
    given: Mapping[str, str] = {"DATABASE_URL": database_url, "REDIS_URL": redis_url} | UNLIMITED | environ
    main = "from celeriac.cli import main; main()"
    command = [sys.executable, "-c", main, "-A", app, "serve", "--port", str(port)]
    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
    with process(command, {"PYTHONPATH": str(ROOT), **given}, log) as running:
        api = Api(f"http://127.0.0.1:{port}", database_url)
        api.server = psutil.Process(running.pid)
        until(lambda: running.process.poll() is not None or is_ready(api), "the API to be ready")
        assert running.process.poll() is None, running.printed()[-3000:]
        yield api
        api.close()


def is_ready(api: Api) -> bool:
    try:
        return api.http.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
