"""The application's own settings, by their variables' names.

Each function raises ConfigurationError naming the variable and what would be right, and its value unless that may be
secret.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping
from functools import cache

from celeriac import ConfigurationError
from celeriac.settings import is_on

logger = logging.getLogger(__name__)

_ADDRESS = re.compile(r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?(/[\w./-]*)?")


def number(
    name: str, default: float, *, at_least: float, at_most: float = math.inf, environ: Mapping[str, str] = os.environ
) -> float:
    return _number(name, default, (at_least, at_most), environ, whole=False)


def whole(
    name: str, default: int, *, at_least: int, at_most: int = 1_000_000, environ: Mapping[str, str] = os.environ
) -> int:
    return int(_number(name, default, (at_least, at_most), environ, whole=True))


def _number(
    name: str, default: float, bounds: tuple[float, float], environ: Mapping[str, str], *, whole: bool
) -> float:
    given, (low, high) = environ.get(name, ""), bounds
    try:
        value = float(given) if given else default
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and low <= value <= high) or (whole and not float(value).is_integer()):
        limit = "" if high == math.inf else f", at most {high:.16g}"
        kind = "whole number" if whole else "number"
        raise ConfigurationError(f"{name}={given!r} is not usable: give a {kind}, at least {low:g}{limit}")
    return value


def positive(name: str, default: float, *, environ: Mapping[str, str] = os.environ) -> float:
    return number(name, default, at_least=0.001, environ=environ)


def switch(name: str, *, default: bool, environ: Mapping[str, str] = os.environ) -> bool:
    return is_on(name, environ, default=default)


def required(name: str, what: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """`what` it is to be set to, in words."""
    require(bool(environ.get(name)), f"{name} is empty: set it to {what}")
    return environ[name]


def address(name: str, default: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """Where a service answers over HTTP."""
    given = environ.get(name) or default
    require(bool(_ADDRESS.fullmatch(given)), f"{name} must look like {default}, without credentials, query or fragment")
    return given


def tell(mistake: ConfigurationError) -> None:
    """Once, in this process's log: tasks that wait for a setting to be mended have not failed, so nobody looks."""
    _tell(os.getpid(), str(mistake))


@cache
def _tell(_pid: int, mistake: str) -> None:
    logger.error("tasks wait until this is mended: %s", mistake)


def require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigurationError(message)
