"""The audit trail: who changed what, from what to what, and why; filtered, and as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastapi import APIRouter, Response
from starlette.responses import StreamingResponse

from celeriac import insights
from celeriac.dashboard.forms import number, seconds
from celeriac.dashboard.guard import Viewer
from celeriac.dashboard.reading import bound
from celeriac.insights.history.trail import LOOK, Of, trail
from celeriac.insights.tasks import exports
from celeriac.insights.tasks.veil import veiled

router = APIRouter()


ROWS = 50

FILTERS = ("by", "via", "action", "kind", "target", "newer")

#: The kinds of things that are changed, and the surfaces on which they are.
KINDS = (
    "task", "role", "account", "worker", "schedule", "dead_letter", "alert", "bulk", "view", "token", "enqueuer",
)  # fmt: skip
VIAS = ("dashboard", "API", "command line", "application", "SQL")

#: The columns of a file.
NAMES = ("id", "at", "by", "via", "action", "kind", "target", "before", "after", "why")


@router.get("/audit")
def listed(page: Viewer) -> Response:
    asked = page.ask(*FILTERS, "before")
    before = number(asked, "before")
    entries = page.panel(trail, wanted(asked), limit=ROWS, after=None if before is None else str(before))
    return page.show("audit.html", "Audit", trail=entries, kinds=KINDS, vias=VIAS, look=LOOK)


@router.get("/audit/export.{kind}")
def export(kind: exports.Kind, page: Viewer) -> Response:
    """Export the filtered trail, up to 100,000 entries."""
    meant = wanted(page.ask(*FILTERS))

    def read(limit: int, after: str | None) -> insights.Page:
        with page.celeriac.database.reading() as connection:
            bound(connection)
            listed = trail(connection, meant, limit=limit, after=after)
        items = listed.items if page.may("view_args") else veiled(listed.items)
        return insights.Page(items, listed.next)

    headers = {"Content-Disposition": f'attachment; filename="audit.{kind}"'}
    media = "text/csv; charset=utf-8" if kind == "csv" else "application/x-ndjson"
    lines: Iterator[str] = exports.lines(kind, exports.pages(read), NAMES)
    return (
        Response(media_type=media, headers=headers)
        if page.without_body
        else StreamingResponse(lines, media_type=media, headers=headers)
    )


def wanted(asked: Mapping[str, str]) -> Of:
    """Return the query's filter. Raises BadValue."""
    values = {name: asked.get(name) for name in FILTERS if name != "newer"}
    return Of(**values, newer_than=seconds("newer", asked.get("newer"), "90, 30s, 15m, 1h or 2d"))
