"""`REDIS_URL=none`: there is no Redis. What would need one is refused by name."""

from __future__ import annotations

from typing import Any, NoReturn

from click import ClickException
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Transport as Redis

from celeriac.errors import ConfigurationError

#: What a connection's URL says then.
ADDRESS = "none://"

REFUSED = (
    "REDIS_URL=none: there is no Redis, which inspect, remote control, Flower, Celery's events and adopting need; "
    "`celeriac status`, the API and the dashboard have the rest"
)


class NeedsRedis(ConfigurationError, ClickException):
    """Celery's command line tells it in a line."""

    def __init__(self, message: str = REFUSED) -> None:
        ClickException.__init__(self, message)


class NoRedis(Redis):
    """Kombu's, so that Celery sets its worker up as for Redis; it connects to nothing."""

    def establish_connection(self) -> NoReturn:
        raise NeedsRedis

    def verify_connection(self, connection: Any) -> bool:  # noqa: ARG002 - kombu's signature
        return False


TRANSPORT_ALIASES["none"] = f"{__name__}:NoRedis"
