"""What scrolls by itself can be scrolled by keys: it has something that takes the focus, or takes it itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import celeriac.dashboard

REGION = re.compile(r'<div class="wide"(?P<focus> tabindex="0")?[^>]*>(?P<inner>.*?)</div>', re.DOTALL)

#: Links, what is clicked, and macros that have some.
FOCUSABLE = re.compile(r"href=|<button|<input|<select|\b(?:task|link|account|role|worker|fragment)\(")

TEMPLATES = sorted(Path(celeriac.dashboard.__file__).parent.rglob("*.html"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_region_that_may_scroll_takes_the_focus(template: Path) -> None:
    """Whether it scrolls depends on its texts: around midnight times are written with their day."""
    regions = REGION.finditer(template.read_text())
    assert [r[0][:80] for r in regions if not r["focus"] and not FOCUSABLE.search(r["inner"])] == []


def test_there_are_such_regions() -> None:
    assert sum(len(REGION.findall(template.read_text())) for template in TEMPLATES) > 20
