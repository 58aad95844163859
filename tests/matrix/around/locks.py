"""celery-once holds its lock from the call to the end of the run, beside Celeriac as beside stock Celery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery_once import AlreadyQueued, QueueOnce

from celeriac import Celeriac, Settings
from tests.processes import until

#: Celery's own, as of redis-py's `setex`.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def stock(_: str, redis_url: str) -> Any:
    return Celery("once", broker=redis_url, backend=redis_url, set_as_current=False)


def ours(database_url: str, redis_url: str) -> Any:
    return Celeriac("once", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)


@pytest.mark.parametrize("make", [stock, ours])
def test_a_call_is_refused_until_the_one_before_it_has_ended(
    make: Any, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    app = make(database_url, redis_url)
    app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": redis_url, "default_timeout": 3600}}

    @app.task(name="once.build", base=QueueOnce, once={"keys": ["shop"]}, shared=False)
    def build(shop: int, page: int = 0) -> int:
        return shop + page

    first = build.delay(1, page=1)
    with pytest.raises(AlreadyQueued):
        build.delay(1, page=2)
    assert build.apply_async((1,), once={"graceful": True}).state == "REJECTED"
    other = build.delay(2)
    with start_worker(app, perform_ping_check=False, pool="solo", queues=["celery", "once.build"]):
        assert (first.get(timeout=30), other.get(timeout=30)) == (2, 2)
        until(lambda: not build.once_backend.redis.keys("qo_*"), "the locks to be free")
        assert build.delay(1).get(timeout=30) == 1
    app.close()
