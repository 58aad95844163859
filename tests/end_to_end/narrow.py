"""The shop, in a process that may have few files open unless it asks for more."""

from __future__ import annotations

import resource

from tests.end_to_end.shop import app

__all__ = ["app"]

resource.setrlimit(resource.RLIMIT_NOFILE, (128, 1024))
