"""Each wall that the page of tenants names has its test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_wall_between_tenants_has_its_test() -> None:
    rows = [line for line in (ROOT / "docs" / "tenants.md").read_text().splitlines() if line.startswith("| ")][2:]
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"^(?:async )?def (test_\w+)", written, re.MULTILINE))
    for row in rows:
        assert (named := set(re.findall(r"`(test_\w+)`", row))), row
        assert named <= known, named - known
    assert len(rows) > 6
