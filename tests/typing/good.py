"""What type checkers have to accept."""

from __future__ import annotations

from typing import Any

from celeriac import Celeriac, Task, days
from celeriac.task import Enqueued

app = Celeriac("typed")


@app.task
def bare(a: int, b: str = "") -> int:
    return a


@app.task(bind=True, role="bound", lock_by="x", keep=days(3), autoretry_for=(ValueError,), retry_backoff=5)
def bound(self: Task[..., Any], x: int, *, y: str = "") -> dict[str, int]:
    self.progress({"x": x})
    return {"x": x}


@app.task(role="unbound", priority=5)
def unbound(x: int) -> None: ...


enqueued: Enqueued = bare.delay(1, b="x")
enqueued.get()
bound.delay(1, y="z")
bound.using(priority=50).delay(x=1)
unbound.delay(3)
unbound.apply_async(kwargs={"x": 3}, countdown=60)
