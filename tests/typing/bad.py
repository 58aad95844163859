"""What type checkers have to refuse: each line marked as wrong, and no other."""

from __future__ import annotations

from typing import Any

from celeriac import Celeriac, Task, testing
from tests.typing.good import bare, bound, made, patient, unbound, untyped_self

app = Celeriac("mistyped")

bound.delay("no")  # wrong
bound.delay(1, 2, 3)  # wrong
bound.delay()  # wrong
bare.delay(1, c=1)  # wrong
unbound.using(priority=1).delay("x")  # wrong
unbound.using(prioritty=1).delay(3)  # wrong
unbound.using(countdown="soon").delay(3)  # wrong
unbound.using(eta=5).delay(3)  # wrong
unbound.bulk([(3,)], sesion=None)  # wrong
unbound.bulk([(3,)], task_id="same for all")  # wrong
app.enqueue_many("unbound", [(3,)], prioritty=1)  # wrong
patient.delay(1, y="2")  # wrong
untyped_self.delay("x")  # wrong
made.delay()  # wrong
testing.run(unbound.using(priority=5), "x")  # wrong
app.task(role="x", lok_by="x")  # wrong
unbound.using(session="session").delay(3)  # wrong
app.task(role="x", retry_jitter="some")  # wrong
app.task(role="x", chunk="many")  # wrong
app.task(role="x", keep=30)  # wrong
app.task(role=5)  # wrong
app.task(5)  # wrong


@app.task(bind=True, role="bad", priority="high")  # wrong
def bad(self: Task[..., Any]) -> None: ...


@app.task(bind=True, role="no_self")  # wrong
def no_self() -> None: ...


async def on_a_loop() -> None:
    await bound.adelay("no")  # wrong
    await bound.adelay(1, 2, 3)  # wrong
    await unbound.using(priority=1).adelay("x")  # wrong
    await unbound.abulk([(3,)], sesion=None)  # wrong
    await unbound.abulk([(3,)], task_id="same for all")  # wrong
