"""The overview's headline, and what each page says of other surfaces."""

from __future__ import annotations

import pytest

from celeriac.dashboard import reading
from celeriac.dashboard.templates import ALSO, NAV
from tests.dashboard.site import Site
from tests.processes import until


def test_nothing_is_well_that_nobody_knows(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "<h1>All is well</h1>" in site.html("overview")
    monkeypatch.setattr(reading, "TIMEOUT", 0.05)
    with site.locked("beats"):
        told = "<h1>Not known: 1 of 8 checks did not answer</h1>"
        until(lambda: told in site.html("overview"), "the headline")
    site.rows("INSERT INTO celeriac.alerts (name, subject, value, threshold) VALUES ('queue_depth', 'crawl', 2, 1)")
    with site.locked("beats"):
        told = "<h1>1 thing needs you; 1 of 8 checks did not answer</h1>"
        until(lambda: told in site.html("overview"), "the headline")


def test_every_page_names_the_command_that_tells_the_same() -> None:
    """What a pass decided is shown by the dashboard and the API alone."""
    assert {page for page, _, _ in NAV} == ALSO.keys()
    assert [page for page, (command, _) in ALSO.items() if command is None] == ["decisions"]
