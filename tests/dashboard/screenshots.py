"""Pictures of all pages, light and dark, wide and narrow, in build/screenshots: `make screenshots`.

For a human eye; nothing is compared. By its name no run of the tests collects it.
"""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.sync_api import Browser

from tests.conftest import ROOT
from tests.dashboard.pages import FORMS, ONE, PAGES, filled
from tests.dashboard.site import Site

FOLDER = ROOT / "build" / "screenshots"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("width", [1400, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_pages_have_their_picture_taken(
    browser: Browser, site: Site, furnished: dict[str, int], scheme: Literal["light", "dark"], width: int
) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    size = {"width": width, "height": 900}
    with browser.new_context(base_url=f"{site.url}/", viewport=size, color_scheme=scheme) as context:  # type: ignore[arg-type]
        context.add_cookies([{"name": "celeriac", "value": site.session("admin"), "url": site.url}])
        page = context.new_page()
        for path in (*PAGES, *ONE, *FORMS):
            answer = page.goto(filled(path, furnished))
            assert answer is not None
            assert answer.ok, path
            page.screenshot(path=FOLDER / f"{named(path)}-{width}-{scheme}.png", full_page=True)


def named(path: str) -> str:
    """Without what furnishing chose."""
    return re.sub(r"\W+", "-", path.format(evil="evil", pending="pending", running="running", failed="failed")).strip(
        "-"
    )
