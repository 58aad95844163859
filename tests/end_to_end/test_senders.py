"""A plain Celery app's own user of Redis, as docs/adopting.md gives it: it may send, and write nowhere else."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery
from sqlalchemy import make_url

from celeriac import Celeriac, Settings, local
from celeriac.dispatch.keys import adopting_key, ticket_key
from celeriac.worker.adopter import Adopter
from tests.deploy.written import of
from tests.processes import Rows

BLOCKS = of("docs/adopting.md", "text")
GIVEN = "".join(block.text for block in BLOCKS)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    server = local.ValkeyServer(tmp_path / "valkey")
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def senders_url(redis_url: str) -> str:
    """As the page's user."""
    with redis.Redis.from_url(redis_url) as client:
        client.execute_command(*shlex.split(GIVEN))
    return make_url(redis_url).set(username="sender", password="secret").render_as_string(hide_password=False)


def test_a_sender_may_send_to_its_queue_and_write_nowhere_else(
    database_url: str, redis_url: str, senders_url: str, rows: Rows
) -> None:
    app = Celeriac("till", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)

    @app.task(role="charge", adopt=True, shared=False)
    def charge(n: int) -> None: ...

    plain = Celery("plain", broker=senders_url, set_as_current=False)
    for n, priority in enumerate((0, 3, 9)):
        plain.send_task("charge", (n,), queue="charge", priority=priority)
    Adopter(app, lambda: {"charge"}).look()
    assert sorted(kwargs["n"] for (kwargs,) in rows("SELECT kwargs FROM worker_tasks")) == [0, 1, 2]
    with redis.Redis.from_url(senders_url) as client:
        for key in (ticket_key("charge"), adopting_key("charge"), "celery", "refund", "chargeback"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.lpush(key, "x")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.rpop("charge")
    plain.close()
    app.publisher.close()
    app.database.dispose()
