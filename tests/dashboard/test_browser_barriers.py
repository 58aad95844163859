"""Every page by its address, visited once: it opens, fits a small screen, and by axe-core's rules keeps nobody out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page, expect

from tests.api.works import task
from tests.dashboard.conftest import forgetful
from tests.dashboard.pages import FORMS, ONE, PAGES, filled
from tests.dashboard.site import Site, worker

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


#: All that a page tells by itself: whether it is one, and whether what others wrote has become markup.
FACTS = """() => ({
    title: document.title, headings: document.querySelectorAll('h1').length,
    foreign: document.querySelectorAll('main :is(img, script, iframe)').length,
})"""

#: Once the next frame has been.
DRAWN = "new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"

#: Pages that stand still: forms, and what is asked of what there was.
STILL = ("sign-in", "tasks/matching", "new-", "edit-")

SMALL = 360

#: Milliseconds for a page.
PATIENCE = 10_000


class Seen(NamedTuple):
    """What one visit of a page tells, on a small screen: its facts, its width, and what went wrong meanwhile, by its
    scripts or for who looked; on a wide one with all open what axe-core says.
    """

    wrong: list[str]
    facts: Mapping[str, Any] = MappingProxyType({})
    width: int = 0
    barriers: Sequence[Any] = ()


@pytest.fixture(scope="module")
def seen(furnished_of_module: Site, browser: Browser) -> dict[str, Seen]:
    """Each page by its address, once for all tests: an admin's, with something of everything, and very long names."""
    site = furnished_of_module
    paths = ("sign-in", *PAGES, *(filled(path, site.ids) for path in (*ONE, *FORMS)), *very_long(site))
    with pytest.MonkeyPatch.context() as patch, admins(site, browser) as page:
        forgetful(patch)
        site.show()
        said = overheard(page)
        return {path: visited(page, path, said) for path in paths}


def very_long(site: Site) -> tuple[str, ...]:
    """The pages of what has a name of 200 letters."""
    long = task(site, "failed", "r" * 200, account="a" * 200, lock_key="k" * 200)
    site.rows("UPDATE celeriac.history SET error_message = repeat('e', 300) WHERE id = :id", id=long)
    worker(site, "w" * 200)
    return f"tasks/{long}", f"accounts/{'a' * 200}"


@contextmanager
def admins(site: Site, browser: Browser) -> Iterator[Page]:
    """A page with axe-core in it."""
    with browser.new_context(base_url=site.url + "/") as context:
        context.add_cookies([{"name": "celeriac", "value": site.session("admin"), "url": site.url}])
        context.add_init_script(AXE.read_text())
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        yield page


def overheard(page: Page) -> list[str]:
    """What is written to the console, which is what is refused as well, thrown, or told by dialogs, from now on."""
    said: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        said.append(f"what others wrote runs: {dialog.message}")
        dialog.dismiss()

    def hear(message: ConsoleMessage) -> None:
        if message.type != "verbose":  # a browser's hint
            said.append(f"{message.type}: {message.text}")

    page.on("console", hear)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", dismiss)
    return said


def visited(page: Page, path: str, said: list[str]) -> Seen:
    """A page that cannot be looked at is none that keeps others from being."""
    said.clear()
    try:
        look(page, *LOOKS["small"][:2])
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200
        if not path.startswith(STILL):
            expect(page.locator("#light")).to_have_text("live")
        facts, width = page.evaluate(FACTS), page.evaluate("document.documentElement.scrollWidth")
        look(page, *LOOKS["light"][:2])
        page.evaluate(OPEN)
        return Seen([*said], facts, width, page.evaluate(RUN, RULES))
    except (AssertionError, Error) as error:
        return Seen([*said, str(error)])


@pytest.fixture
def page(site: Site, browser: Browser) -> Iterator[Page]:
    with admins(site, browser) as page:
        yield page


def look(page: Page, media: dict[str, Any], size: tuple[int, int]) -> None:
    """The page is not loaded again: what it is shown on changes, and has been drawn."""
    page.emulate_media(**{"forced_colors": "none", **media})
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.evaluate(DRAWN)


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
def test_each_page_opens_by_its_address(seen: dict[str, Seen]) -> None:
    """Alive, without a word on the console, with a heading and a title; and nothing that others wrote is markup."""
    assert {path: one.wrong for path, one in seen.items() if one.wrong} == {}
    for path, one in seen.items():
        assert (one.facts["headings"], one.facts["foreign"]) == (1, 0), path
        assert re.fullmatch(".+ · Celeriac", one.facts["title"]), path


@pytest.mark.timeout(900)
def test_no_page_is_wider_than_a_small_screen(seen: dict[str, Seen]) -> None:
    assert {path: one.width for path, one in seen.items() if one.width > SMALL} == {}


@pytest.mark.timeout(900)
def test_no_page_has_a_barrier(seen: dict[str, Seen]) -> None:
    """Wide, light and with all that opens open."""
    assert {path: one.barriers for path, one in seen.items() if one.barriers} == {}


@pytest.mark.nightly("five more looks at each of forty pages")
@pytest.mark.timeout(900)
def test_no_page_has_a_barrier_however_it_is_looked_at(page: Page, furnished: dict[str, int]) -> None:
    paths = ("sign-in", *PAGES, *(filled(path, furnished) for path in (*ONE, *FORMS)))
    found = {}
    for path in paths:
        page.goto(path)
        found[path] = barriers(page, LOOKS)
    assert {path: by_look for path, by_look in found.items() if by_look} == {}
