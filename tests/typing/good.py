"""What type checkers have to accept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import psycopg2.extensions
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from celeriac import FOREVER, Celeriac, Task, days, testing
from celeriac.seam.task import Enqueued

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


@app.task(bind=True)
def untyped_self(self, x: int) -> None: ...  # type: ignore[no-untyped-def]


@app.task(
    role="patient", timeout=timedelta(minutes=5), stale_after=60, keep=FOREVER, chunk="auto", max_retries=None,
    fair_by=lambda arguments: arguments["x"], lock_by="{x}:{y}", soft_time_limit=30, pydantic=True,
)  # fmt: skip
def patient(x: int, y: int = 0) -> list[int]:
    return [x, y]


def plain(x: int) -> None: ...


made = app.task(plain, role="made")

enqueued: Enqueued = bare.delay(1, b="x")
enqueued.get()
bound.delay(1, y="z")
bound.using(priority=50).delay(x=1)
unbound.delay(3)
unbound.using(task_id="mine", countdown=1.5, expires=60, account="a", timeout=5).delay(3)
unbound.bulk([(3,), {"x": 4}], priority=5)
unbound.apply_async(kwargs={"x": 3}, countdown=60)
untyped_self.delay(1)
patient.delay(1, 2)
made.delay(x=1)


async def on_a_loop(session: AsyncSession, connection: AsyncConnection, bare_one: Any) -> None:
    ended: Enqueued = await bare.adelay(1, b="x")
    await ended.aget(timeout=5)
    await bound.adelay(1, y="z")
    await bound.using(priority=50, session=session).adelay(x=1)
    await unbound.using(session=connection).adelay(3)
    await unbound.using(session=bare_one).adelay(3)
    await unbound.aapply_async(kwargs={"x": 3}, countdown=60)
    many: list[Enqueued] = await unbound.abulk([(3,), {"x": 4}], priority=5, session=session)
    async for value in many[0].aprogress():
        print(value)


def in_drivers(psycopg2s: psycopg2.extensions.connection, psycopgs: psycopg.Connection[Any]) -> None:
    unbound.using(session=psycopg2s).delay(3)
    unbound.using(session=psycopgs).delay(3)


ran: testing.Ran = testing.run(bare, 1, b="x")
testing.run(bound.using(priority=50), 1, y="z")
counts: dict[str, int] = testing.drain(unbound, with_retries=True)
