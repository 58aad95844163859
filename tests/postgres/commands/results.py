"""What a command came to: its exit status, and its answer in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

Run = Callable[..., Result]

DONE, PROBLEM, USAGE, REFUSED = 0, 1, 2, 3


def value(result: Result, exit_code: int = DONE) -> Any:
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)
