"""docs/api.md's tables of endpoints, as values."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.processes import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text()


class Listed(NamedTuple):
    method: str
    path: str
    scope: str
    file: str
    test: str

    def is_called_by(self, method: str, path: str) -> bool:
        """Whether a request of that method and path reaches this endpoint."""
        return method == self.method and re.fullmatch(re.sub(r"\{\w+\}", ".+", self.path), path) is not None


LISTED = [
    Listed(*found) for found in re.findall(r"^\| `(\w+) (/\S*)` \|\s*(\w*)\s*\| (\S+) `(\w+)` \|$", PAGE, re.MULTILINE)
]
