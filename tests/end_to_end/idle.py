"""An app with as many roles as `ROLES` says, and nothing to do."""

from __future__ import annotations

import os

from celeriac import Celeriac

app = Celeriac("idle")


def nothing() -> None: ...


for number in range(int(os.environ.get("ROLES", "1"))):
    app.task(nothing, name=f"idle_{number}", role=f"idle_{number}", shared=False)
