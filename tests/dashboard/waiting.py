"""An app whose tasks wait for this and that, each kind on a queue of its own, so that tests choose who is served."""

from __future__ import annotations

import time

from celeriac import Celeriac

app = Celeriac("waiting", set_as_current=False)


def wait(seconds: float = 0.0) -> None:
    time.sleep(seconds)


for role, options in {
    "plain": {"stale_after": 3, "max_losses": 5}, "narrow": {"window": 1}, "paused": {},
    "batched": {"prompt": False, "batch_size": 1}, "unsent": {}, "heavy": {},
    "mailed": {"prompt": False}, "mortal": {"stale_after": 3, "retry_backoff": 60},
}.items():  # fmt: skip
    app.task(shared=False, role=role, name=role, chunk=1, **options)(wait)  # type: ignore[call-overload]
