"""Thousands of connections that never send a whole request leave the server to those who do."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

from tests.api.server import Api, serving
from tests.api.slow import slow_clients
from tests.conftest import Servers
from tests.processes import until

MANY, FILES = 2000, 1024

#: Seconds: how often health is asked, for how long, and within which time it promises each answer.
EVERY, FOR, PROMISED = 0.1, 5.0, 1.0


def health(url: str) -> float:
    """Seconds until a new connection has its answer."""
    began = time.monotonic()
    with urlopen(f"{url}/healthz", timeout=30) as answer:
        assert json.load(answer) == {"status": "ok"}
    return time.monotonic() - began


def slowest(url: str) -> float:
    """Of fifty answers. Each is asked for when it is due, however long others take."""
    began, asked = time.monotonic(), []
    with ThreadPoolExecutor(50) as callers:
        while time.monotonic() < began + FOR:
            asked.append(callers.submit(health, url))
            time.sleep(max(0.0, began + len(asked) * EVERY - time.monotonic()))
        took = max(answer.result() for answer in asked)
    print(f"{len(asked)} answers, the slowest in {took:.3f} s")
    return took


def test_beside_two_thousand_slow_connections_health_answers_within_a_second(
    servers: Servers, database_of_the_api: str, tmp_path: Path
) -> None:
    """All of fifty in a row; where others keep the machine busy, of the fifty after them."""
    with serving(database_of_the_api, servers.redis_url, tmp_path / "api", files=FILES) as api:
        before = api.server.num_fds()
        with slow_clients(int(urlsplit(api.url).port or 0), MANY, tmp_path / "slow"):
            until(lambda: has_many(api), "the server to have as many connections as it takes")
            until(lambda: slowest(api.url) < PROMISED, "answers within a second", patience=4 * FOR)
            assert has_many(api), "they were there until the end"
            assert api.ask("GET", "/api/roles").status_code == 200
        until(lambda: api.server.num_fds() <= before + 4, "the server to have closed what nobody has open")
    assert "Too many open files" not in (tmp_path / "api").read_text()


def has_many(api: Api) -> bool:
    return FILES * 0.4 < api.server.num_fds() < FILES
