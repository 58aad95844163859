"""Saved views of the tasks: links with a name, one's own or everybody's."""

from __future__ import annotations

import html
import re

from celeriac.operate import views
from tests.api.works import audited
from tests.dashboard.site import Site


def links(site: Site, scope: str) -> dict[str, str]:
    nav = site.html("tasks", scope).partition('aria-label="Saved views"')[2].partition("</nav>")[0]
    return {name: html.unescape(at) for at, name in re.findall(r'<a href="([^"]+)">([^<]+)</a>', nav)}


def test_a_view_is_a_link_for_oneself_or_for_all(site: Site) -> None:
    filtered = {"state": "failed", "lock": "store 7", "arg.store_id": "17"}
    assert "Save this view" in site.html("tasks?state=failed")
    assert "Save this view" not in site.html("tasks")
    assert site.post("views/mine", "read", name="mine", **filtered).status_code == 303
    assert site.told("views/shared", name="stores", state="failed") == "The view stores is saved."
    assert links(site, "read") == {
        "stores": "./tasks?state=failed", "mine": "./tasks?state=failed&lock=store+7&arg.store_id=17"
    }  # fmt: skip
    assert list(links(site, "operate")) == ["stores"]
    assert site.post("views/shared", "read", name="x", state="failed").status_code == 403
    assert [a[:2] for a in audited(site, "view", "stores")] == [("operate", "save")]
    assert site.rows("SELECT FROM audit WHERE by = 'read'") == [], "one's own concern nobody else"


def test_a_view_is_saved_anew_under_its_name_and_forgotten(site: Site) -> None:
    for state in ("failed", "running"):
        site.post("views/mine", "read", name="mine", state=state)
    assert links(site, "read") == {"mine": "./tasks?state=running"}
    assert "Nothing was changed" in site.told("forget-view/mine", name="mine"), "it is somebody else's"
    site.post("forget-view/mine", "read", name="mine")
    assert links(site, "read") == {}


def test_what_is_no_view_is_refused(site: Site) -> None:
    for fields in (
        {"name": "x"},
        {"name": "", "state": "failed"},
        {"name": "x", "state": "asleep"},
        {"name": "x" * 999},
    ):
        assert "Nothing was changed" in site.told("views/mine", **fields), fields
    site.rows("INSERT INTO celeriac.saved_views (owner, name, filter) SELECT '', i, '{}' FROM generate_series(1, :n) i",
              n=views.MOST)  # fmt: skip
    assert "forget one first" in site.told("views/shared", name="one more", state="failed")
    assert "is saved" in site.told("views/shared", name="7", state="failed")
