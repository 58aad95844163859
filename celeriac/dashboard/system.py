"""System: is the machinery itself sound? Beats, Redis, Postgres, sweeps."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from celeriac import insights
from celeriac.dashboard import words
from celeriac.dashboard.guard import May
from celeriac.dashboard.page import Page
from celeriac.dashboard.reading import Content
from celeriac.insights.fleet import condition
from celeriac.repair.prune import KNOWN, MINUTES_KEPT
from celeriac.settings import Settings

router = APIRouter()

Viewer = Annotated[Page, Depends(May("view"))]


@router.get("/system")
def system(page: Viewer) -> Response:
    page.ask()
    panels = page.at_once(
        sweeps=partial(page.panel, insights.schedules), beats=partial(page.panel, insights.beats),
        lateness=partial(page.panel, insights.lateness), tickets=partial(tickets, page),
        transactions=partial(page.panel, condition.old_transactions, condition.OLD),
        dead=partial(page.panel, condition.dead_rows, condition.FEW_DEAD),
        connections=partial(page.panel, condition.connections), sizes=partial(page.panel, condition.sizes),
        hours=partial(page.panel, insights.ticket_hours),
        doctor=page.examined, runs=partial(page.panel, insights.sweep_runs),
    )  # fmt: skip
    schedules = panels["sweeps"]
    sweeps = schedules if schedules.stopped else Content([row for row in schedules.value if row["kind"] != "task"])
    return page.show(
        "system.html", "System", republish_after=page.celeriac.probe.republish_after, old=condition.OLD,
        retention=_retention(page.celeriac.settings), **panels | {"sweeps": sweeps},
    )  # fmt: skip


def _retention(settings: Settings) -> list[tuple[str, float]]:
    """Return what the sweep `prune` keeps, and for how many seconds."""
    events, day = settings.event_days * 86_400, 86_400
    return [
        ("Events of tasks, bulk actions, silent workers", events),
        ("Passes, silent beats", settings.pass_hours * 3_600),
        ("Dead letters", settings.dead_letter_days * day),
        ("Minutes of the charts", MINUTES_KEPT * day),
        ("Ids of messages that were adopted", KNOWN * day),
    ]


def tickets(page: Page) -> Content:
    """Return, for each queue that has some, the tickets claimed in SQL beside those in Redis."""
    unstarted = page.panel(insights.unstarted)
    if unstarted.stopped:
        return unstarted
    lengths = page.site.reading.lengths([one.queue for one in unstarted.value])
    queues = [(one, lengths[one.queue]) for one in unstarted.value]
    return Content([_ticket_row(page, one, n) for one, n in queues if one.tickets or n != 0])


def _ticket_row(page: Page, one: insights.UnstartedTickets, in_redis: int | None) -> dict[str, Any]:
    """Return a queue's row. `again_from`: when its oldest ticket counts as lost, if it is not in Redis."""
    lacks = in_redis is not None and one.tickets > in_redis and one.oldest is not None
    grace = timedelta(seconds=page.celeriac.probe.republish_after)
    return asdict(one) | {
        "in_redis": in_redis, "verdict": words.in_step(one.tickets, in_redis),
        "again_from": one.oldest + grace if lacks and one.oldest else None,
    }  # fmt: skip
