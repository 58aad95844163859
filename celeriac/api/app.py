"""The app a handler works on."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from celeriac.app import Celeriac


async def _app(request: Request) -> Celeriac:
    app: Celeriac = request.app.state.celeriac
    return app


App = Annotated[Celeriac, Depends(_app)]
