"""The application of the page about Sentry sends what the page says, to a server that stands for Sentry's."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests import processes
from tests.deploy.written import of
from tests.processes import ROOT, until

BLOCKS = of("docs/sentry.md", "python")

Items = list[tuple[str, dict[str, Any]]]


@contextmanager
def sentry(items: Items) -> Iterator[str]:
    """The address of a project, whose envelopes' items are kept."""

    class Ingest(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            _, *lines = body.splitlines()
            for header, payload in zip(lines[::2], lines[1::2], strict=False):
                items.append((json.loads(header)["type"], json.loads(payload)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Ingest)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://key@127.0.0.1:{server.server_port}/1"
    finally:
        server.shutdown()
        server.server_close()


def test_a_request_and_its_tasks_are_one_trace_and_an_error_is_reported(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    (block,) = BLOCKS
    (tmp_path / "shop.py").write_text(block.text)
    items: Items = []
    with sentry(items) as dsn:
        environ = {
            **os.environ, "SENTRY_DSN": dsn, "DATABASE_URL": database_url, "REDIS_URL": redis_url,
            "PYTHONPATH": f"{ROOT}:{tmp_path}",
        }  # fmt: skip
        with processes.worker("shop", database_url, redis_url, tmp_path / "worker.log", "-c", "1", environ=environ):
            command = [sys.executable, "-c", "import shop; print(shop.checkout(7))"]
            done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=90)
            assert done.returncode == 0, done.stderr
            of_kind = {"transaction": 3, "event": 1}
            until(lambda: all(sum(k == kind for k, _ in items) >= n for kind, n in of_kind.items()), "all of it")
    sent = {said["transaction"]: said for kind, said in items if kind == "transaction"}
    assert sent.keys() == {"checkout", "charge", "mail"}
    assert len({said["contexts"]["trace"]["trace_id"] for said in sent.values()}) == 1
    (error,) = [said for kind, said in items if kind == "event"]
    assert error["exception"]["values"][-1]["value"] == "no mail for 7"
    assert error["transaction"] == "mail"
    assert error["extra"]["celery-job"]["task_name"] == "mail"
