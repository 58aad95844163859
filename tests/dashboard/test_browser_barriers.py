"""No page keeps anybody out: axe-core's rules, on every page and in every way to look at one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.dashboard.pages import FORMS, ONE, PAGES, filled
from tests.dashboard.site import Site

AXE = files("axe_playwright_python") / "axe.min.js"

#: WCAG 2.2 AA, and what is good practice: all rules, those included that axe leaves out where none are named.
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")

#: Those of them that ask what colours things have: nothing else is another where only the colours are.
OF_COLOURS = ("color-contrast", "link-in-text-block")

#: How a page is looked at: its media, its size in CSS pixels, and by which rules. At 200 % a screen of 1280 x 800 has
#: half of them.
LOOKS: dict[str, tuple[dict[str, Any], tuple[int, int], tuple[str, ...]]] = {
    "light": ({"color_scheme": "light"}, (1400, 900), RULES),
    "dark": ({"color_scheme": "dark"}, (1400, 900), OF_COLOURS),
    "forced colours": ({"color_scheme": "light", "forced_colors": "active"}, (1400, 900), OF_COLOURS),
    "small": ({"color_scheme": "light"}, (360, 700), RULES),
    "zoomed": ({"color_scheme": "dark"}, (640, 400), RULES),
}

#: What is left out: what WCAG asks for at AAA alone, and rules that axe-core has on trial or has given up.
LEFT_OUT = {"wcag2aaa", "experimental", "deprecated"}

RUN = """async rules => {
    const found = await axe.run({runOnly: rules, resultTypes: ['violations']});
    return found.violations.map(v => [v.id, v.nodes.map(n => n.html)]);
}"""

RAN = """async rules => {
    const found = await axe.run({runOnly: rules});
    const ran = [found.passes, found.violations, found.incomplete, found.inapplicable].flat().map(rule => rule.id);
    return [ran, axe.getRules().map(rule => [rule.ruleId, rule.tags])];
}"""

OPEN = "document.querySelectorAll('details').forEach(part => { part.open = true })"


@pytest.fixture
def page(site: Site, browser: Browser) -> Iterator[Page]:
    """An admin's, with axe-core in it."""
    with browser.new_context(base_url=site.url + "/", bypass_csp=True) as context:
        context.add_cookies([{"name": "celeriac", "value": site.session("admin"), "url": site.url}])
        context.add_init_script(AXE.read_text())
        yield context.new_page()


def look(page: Page, media: dict[str, Any], size: tuple[int, int]) -> None:
    """The page is not loaded again: what it is shown on changes."""
    page.emulate_media(**{"forced_colors": "none", **media})
    page.set_viewport_size({"width": size[0], "height": size[1]})


def barriers(page: Page, looks: Iterable[str]) -> dict[str, Any]:
    """Violations that axe-core finds by look, and once more with all that opens open."""
    found = {}
    for name in looks:
        media, size, rules = LOOKS[name]
        look(page, media, size)
        found[name] = page.evaluate(RUN, rules)
    look(page, *LOOKS["light"][:2])
    page.evaluate(OPEN)
    found["open"] = page.evaluate(RUN, RULES)
    return {name: violations for name, violations in found.items() if violations}


def test_all_rules_are_tried(page: Page) -> None:
    page.goto("sign-in")
    ran, rules = page.evaluate(RAN, RULES)
    assert {*ran} == {rule for rule, tags in rules if LEFT_OUT.isdisjoint(tags)}
    assert {"color-contrast", "target-size", "region"} <= {*ran}
    assert {*OF_COLOURS} == {rule for rule, tags in rules if "cat.color" in tags and rule in ran}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "looks",
    [
        pytest.param((), id="open"),
        pytest.param(tuple(LOOKS), id="all", marks=pytest.mark.nightly("five more looks at each of forty pages")),
    ],
)
def test_no_page_has_a_barrier(page: Page, furnished: dict[str, int], looks: tuple[str, ...]) -> None:
    paths = ("sign-in", *PAGES, *(filled(path, furnished) for path in (*ONE, *FORMS)))
    found = {}
    for path in paths:
        page.goto(path)
        found[path] = barriers(page, looks)
    assert {path: by_look for path, by_look in found.items() if by_look} == {}
