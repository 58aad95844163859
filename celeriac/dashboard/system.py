"""System: are beats, Redis, Postgres and sweeps sound?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.dashboard import words
from celeriac.dashboard.guard import Viewer
from celeriac.dashboard.page import Page
from celeriac.dashboard.reading import Content
from celeriac.insights.fleet import condition
from celeriac.repair.prune import KNOWN, MINUTES_KEPT
from celeriac.settings import Settings

router = APIRouter()


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
    sweeps = panels["sweeps"].then(lambda rows: [row for row in rows if row["kind"] != "task"])
    return page.show(
        "system.html", "System", republish_after=page.celeriac.probe.republish_after, old=condition.OLD,
        retention=_retention(page.celeriac.settings), **panels | {"sweeps": sweeps},
    )  # fmt: skip


def _retention(settings: Settings) -> list[tuple[str, float]]:
    """Return what the sweep `prune` keeps, and for how many seconds."""
    day = 86_400
    return [
        ("Events of tasks, bulk actions, silent workers", settings.event_days * day),
        ("Passes, silent beats", settings.pass_hours * 3_600),
        ("Dead letters", settings.dead_letter_days * day),
        ("Minutes of the charts", MINUTES_KEPT * day),
        ("Ids of messages that were adopted", KNOWN * day),
    ]


def tickets(page: Page) -> Content:
    """Return, for each queue that has some, the unstarted tickets in SQL beside those in Redis."""

    def rows(queues: Sequence[insights.UnstartedTickets]) -> list[dict[str, Any]]:
        lengths = page.site.reading.lengths([one.queue for one in queues])
        return [_ticket_row(page, one, n) for one in queues if (n := lengths[one.queue]) != 0 or one.tickets]

    return page.panel(insights.unstarted).then(rows)


def _ticket_row(page: Page, one: insights.UnstartedTickets, in_redis: int | None) -> dict[str, Any]:
    """Return a queue's row. `again_from`: when its oldest ticket counts as lost, if Redis may lack it."""
    lacks = in_redis is not None and one.tickets > in_redis
    grace = timedelta(seconds=page.celeriac.probe.republish_after)
    return asdict(one) | {
        "in_redis": in_redis, "verdict": words.in_step(one.tickets, in_redis),
        "again_from": one.oldest + grace if lacks and one.oldest else None,
    }  # fmt: skip
