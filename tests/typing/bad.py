"""What type checkers have to refuse: each line marked as wrong, and no other."""

from __future__ import annotations

from typing import Any

from celeriac import Celeriac, Task
from tests.typing.good import bare, bound, unbound

app = Celeriac("mistyped")

bound.delay("no")  # wrong
bound.delay(1, 2, 3)  # wrong
bound.delay()  # wrong
bare.delay(1, c=1)  # wrong
unbound.using(priority=1).delay("x")  # wrong
app.task(role="x", lok_by="x")  # wrong
app.task(role="x", retry_jitter="some")  # wrong


@app.task(bind=True, role="bad", priority="high")  # wrong
def bad(self: Task[..., Any]) -> None: ...
