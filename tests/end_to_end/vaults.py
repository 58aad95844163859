"""Tasks that fail in every way there is with a secret in their hands."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

from celery import current_task

from celeriac import Celeriac, Permanent

app = Celeriac("vaults", set_as_current=False)

logger = logging.getLogger(__name__)


class Hooked(app.Task):  # type: ignore[misc, name-defined]
    """Whose hook fails, too."""

    def on_failure(self, exc: BaseException, *_: Any) -> None:
        raise LookupError(f"nobody to hear of {exc}")


class Unreadable(Exception):
    """It does not survive the way to another process."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)
        self.two = two


def failing(user: str, password: str) -> str:
    logger.info("Signing in %s", user)
    current_task.update_state(state="PROGRESS", meta={"tried": password})
    if user == "permanent":
        raise Permanent(f"no {password}")
    if user == "again":
        raise current_task.retry(exc=ValueError(f"{password} came too late"), countdown=3600)
    if user == "chained":
        try:
            raise KeyError(password)
        except KeyError as error:
            raise ValueError(f"{password!r}") from error
    if user == "unreadable":
        raise Unreadable(password, password)
    if user == "no result":
        return {password}  # type: ignore[return-value]
    if user == "exit":
        raise SystemExit(password)
    if user == "slow":
        time.sleep(60)
    if user == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return password


OPTIONS: dict[str, Any] = {
    "sensitive": ("password",), "shared": False, "max_retries": 0, "max_rounds": 1, "soft_time_limit": 1,
    "time_limit": 2, "adopt": True, "chunk": 1,
}  # fmt: skip
sign_in = app.task(role="sign_in", **OPTIONS)(failing)
hooked = app.task(role="hooked", base=Hooked, **OPTIONS)(failing)
