"""The application's own settings, by their variables' names.

Each function raises ConfigurationError naming the variable and what would be right, and its value unless that may be
secret.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping

from celeriac import ConfigurationError

_SWITCH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_ADDRESS = re.compile(r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?(/[\w./-]*)?")


def number(
    name: str, default: float, *, at_least: float, at_most: float = math.inf, environ: Mapping[str, str] = os.environ
) -> float:
    given = environ.get(name, "")
    try:
        value = float(given) if given else default
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and at_least <= value <= at_most):
        limit = "" if at_most == math.inf else f", at most {at_most:g}"
        raise ConfigurationError(f"{name}={given!r} is not usable: give a number, at least {at_least:g}{limit}")
    return value


def positive(name: str, default: float, *, environ: Mapping[str, str] = os.environ) -> float:
    return number(name, default, at_least=0.001, environ=environ)


def switch(name: str, *, default: bool, environ: Mapping[str, str] = os.environ) -> bool:
    given = environ.get(name, "").lower()
    if given and given not in _SWITCH:
        raise ConfigurationError(f"{name}={given!r} is not usable: give true or false")
    return _SWITCH.get(given, default)


def required(name: str, what: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """`what` it is to be set to, in words."""
    require(bool(environ.get(name)), f"{name} is empty: set it to {what}")
    return environ[name]


def address(name: str, default: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """Where a service answers over HTTP."""
    given = environ.get(name) or default
    require(bool(_ADDRESS.fullmatch(given)), f"{name} must look like {default}, without credentials, query or fragment")
    return given


def require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigurationError(message)
