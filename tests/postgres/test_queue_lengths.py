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


def test_no_queue_has_a_length_in_redis_and_sql_tells_what_waits(app: Celeriac, rows: Rows, redis_url: str) -> None:
    @app.task(role="product_resync", prompt=False, shared=False)
    def resync(n: int) -> None: ...

    app.register_roles()
    resync.bulk([(n,) for n in range(7)])
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen("product_resync") == 0
    for connection in (app.connection_for_read(), app.pool.acquire()):
        with connection, pytest.raises(ChannelError, match="no queue 'product_resync'"):
            connection.default_channel.queue_declare("product_resync", passive=True)
    assert rows.one(READY) == 7
    assert rows.one(SLOTS) != 0
