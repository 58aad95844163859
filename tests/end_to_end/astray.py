"""Tasks that open their session, in a process whose new connections go where a file says: `{"host": …, "port": …}`."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.engine import Engine

from celeriac import Celeriac, Task

app = Celeriac("astray")


_where: dict[str, Any] = {}


@event.listens_for(Engine, "do_connect")
def goes_where_a_file_says(_: Any, __: Any, ___: Any, options: dict[str, Any]) -> None:
    """Where the file cannot be read, for want of descriptors, as it said last."""
    with suppress(OSError):
        said = json.loads(Path(os.environ["ASTRAY"]).read_text())
        _where.clear()
        _where.update(said)
    options.update(_where)


@app.task(shared=False, role="plain")
def plain() -> None: ...


@app.task(shared=False, bind=True, role="asks", max_retries=0, max_losses=1)
def asks(self: Task[..., Any]) -> int:
    return int(self.session.execute(text("SELECT 1")).scalar_one())
