"""Redis says nothing of what waits: who asks it for a queue's length hears of none; SQL tells, as its page says."""

from __future__ import annotations

import re

import pytest
import redis
from kombu.exceptions import ChannelError

from celeriac import Celeriac
from tests.processes import ROOT, Rows

PAGE = (ROOT / "docs" / "monitoring.md").read_text()
READY, SLOTS = re.findall(r"`(SELECT (?:ready_tasks|celeriac.wanted_slots).*?)`", PAGE)

#: Not the example's: other tests of this process may have imported its tasks, which are shared with every app.
ROLE = "resyncing"


def test_no_queue_has_a_length_in_redis_and_sql_tells_what_waits(app: Celeriac, rows: Rows, redis_url: str) -> None:
    @app.task(role=ROLE, prompt=False, shared=False)
    def resync(n: int) -> None: ...

    app.register_roles()
    resync.bulk([(n,) for n in range(7)])
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen(ROLE) == 0
    for connection in (app.connection_for_read(), app.pool.acquire()):
        with connection, pytest.raises(ChannelError, match=f"no queue {ROLE!r}"):
            connection.default_channel.queue_declare(ROLE, passive=True)
    assert rows.one(READY.replace("product_resync", ROLE)) == 7
    assert rows.one(SLOTS.replace("product_resync", ROLE)) != 0
