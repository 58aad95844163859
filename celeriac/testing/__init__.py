"""Tests of an application: its tasks run in the test's process, on real SQL, by the code that a worker runs.

`mode`, `run` and `drain` need Postgres alone, except for `mode("worker")`. The plugin `pytest_celeriac` has fixtures:
servers, databases, the app; `celeriac.testing.contrib` makes those of `celery.contrib.pytest` work.
"""

from celeriac.testing.clock import advance
from celeriac.testing.modes import mode
from celeriac.testing.rows import assert_enqueued, enqueued, refute_enqueued, task_row
from celeriac.testing.running import Ran, drain, run

__all__ = [
    "Ran", "advance", "assert_enqueued", "drain", "enqueued", "mode", "refute_enqueued", "run", "task_row",
]  # fmt: skip
