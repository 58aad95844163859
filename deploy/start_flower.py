"""Starts Flower, unless others than this machine would reach it with the password that everybody knows.

FLOWER_HOST: the address of the machine at which compose publishes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from ipaddress import ip_address

#: What docker-compose.yml has where nobody gives one.
KNOWN = "celeriac:celeriac"

COMMAND = ("celery", "-A", "tasks", "flower")


def refusal(environ: Mapping[str, str]) -> str | None:
    """Why it may not start, and what to do."""
    host = environ.get("FLOWER_HOST") or "127.0.0.1"
    passwords = [one.strip() for one in environ.get("FLOWER_BASIC_AUTH", "").split(",")]
    if _is_loopback(host) or (all(passwords) and KNOWN not in passwords):
        return None
    return f"FLOWER_HOST={host}: with FLOWER_BASIC_AUTH unset everybody knows the password; give name:password"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    if why := refusal(os.environ):
        sys.exit(why)
    os.execvp(COMMAND[0], COMMAND)  # noqa: S606 - in its place, so that it gets the container's signals
