"""An app whose tasks are called with secrets, and tell them wherever a handler can."""

from __future__ import annotations

import logging
from typing import Any

from celery import current_task

from celeriac import Celeriac, Permanent
from tests.spelled import SAID

app = Celeriac("vault", set_as_current=False)

logger = logging.getLogger(__name__)


@app.task(shared=False, role="login", sensitive=("password", "pin"), max_retries=1, retry_backoff=False, chunk=1)
def login(user: str, password: str, card: dict[str, Any] | None = None) -> dict[str, Any]:
    current_task.update_state(state="PROGRESS", meta={"tried": password, "card": card})
    if user == "nobody":
        raise Permanent(f"nobody has the password {password!r}, nor {card}")
    if user == "late":
        raise login.retry(exc=ValueError(f"{password} came too late"), countdown=3600)
    if user == "spelled":
        current_task.update_state(state="PROGRESS", meta=SAID.splitlines())
        raise Permanent(SAID)
    if user == "busy":
        raise KeyError(password)
    return {"user": user, "password": password, "said": f"welcome {password}"}


@app.task(shared=False, name="plain_login", sensitive=("password",), keep="forever")
def plain_login(user: str, password: str) -> None:
    """Its row keeps what is positional by its place."""
    if user == "nobody":
        raise ValueError(f"no {password}")
