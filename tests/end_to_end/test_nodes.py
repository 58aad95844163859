"""The worker as a pytest-celery node: found ready, killed and restarted through that API."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from tests.end_to_end.conftest import QUICK
from tests.end_to_end.nodes import worker_node
from tests.processes import Rows


def test_a_node_that_is_killed_and_restarted_goes_on_where_it_was(
    shop: ModuleType, rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    environ = {**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url}
    node = worker_node(environ, tmp_path / "node.log")
    try:
        node.wait_for_log("ready.")
        assert shop.add.delay(1, 1).get(timeout=20) == 2
        node.kill()
        assert node.container.status == "exited"
        waiting = shop.add.delay(20, 22)
        node.restart()
        assert waiting.get(timeout=30) == 42
        assert rows.one("SELECT count(*) FROM celeriac.workers") == 2, "a restarted worker is another worker"
    finally:
        node.kill()
