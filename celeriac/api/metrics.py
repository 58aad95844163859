"""`/metrics`: figures for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from celeriac.api.callers import Reader
from celeriac.api.shared import Shared
from celeriac.metrics.exporter import CONTENT_TYPE

router = APIRouter(tags=["about"])


EXAMPLE = 'celeriac_tasks_ready{role="product_resync"} 45.0\n'


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"example": EXAMPLE}}}},
)
async def get_metrics(request: Request, _: Reader) -> Response:
    """Return the figures in SQL, as Prometheus' text; a reading is reused for five seconds."""
    shared: Shared[bytes] = request.app.state.metrics
    return Response(await shared(), media_type=CONTENT_TYPE)
