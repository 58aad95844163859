"""`REDIS_URL=none`: an app without Redis. Features that need Redis raise NeedsRedis."""

from __future__ import annotations

from typing import Any, NoReturn

from click import ClickException
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Transport as Redis

from celeriac.errors import ConfigurationError

#: The URL of a connection in that case.
ADDRESS = "none://"

REFUSED = (
    "REDIS_URL=none: there is no Redis, which inspect, remote control, Flower, Celery's events and adopting need; "
    "`celeriac status`, the API and the dashboard have the rest"
)


class NeedsRedis(ConfigurationError, ClickException):
    """A feature that needs Redis was used without one; Celery's command line prints the message in one line."""

    def __init__(self, message: str = REFUSED) -> None:
        ClickException.__init__(self, message)


class NoRedis(Redis):
    """A transport that connects to nothing.

    It derives from kombu's Redis, so Celery sets the worker up as for Redis.
    """

    def establish_connection(self) -> NoReturn:
        raise NeedsRedis

    def verify_connection(self, connection: Any) -> bool:  # noqa: ARG002 - kombu's signature
        return False


TRANSPORT_ALIASES["none"] = f"{__name__}:NoRedis"
