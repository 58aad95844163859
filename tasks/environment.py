"""The application's own settings, by their variables' names."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from celeriac import ConfigurationError


def number(name: str, default: float, *, at_least: float, environ: Mapping[str, str] = os.environ) -> float:
    """Raises ConfigurationError naming the variable, its value and what would be right."""
    given = environ.get(name, "")
    try:
        value = float(given) if given else default
    except ValueError:
        value = float("nan")
    if not at_least <= value < math.inf:
        raise ConfigurationError(f"{name}={given!r} is not usable: give a number, at least {at_least:g}")
    return value


def switch(name: str, *, default: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Raises ConfigurationError naming the variable, its value and what would be right."""
    given = environ.get(name, "").lower()
    if given not in ("", "true", "false"):
        raise ConfigurationError(f"{name}={given!r} is not usable: give true or false")
    return given == "true" if given else default
