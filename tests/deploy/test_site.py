"""The site that `make docs` builds of README.md and docs: whole, of this host alone, and with no link to nowhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from celeriac import errors
from celeriac.api.problems import KINDS
from celeriac.cli import main
from celeriac.roles.rules import RULES
from tests.api.page import LISTED
from tests.deploy.finishing import finish
from tests.deploy.surroundings import surroundings
from tests.deploy.written import names
from tests.processes import ROOT

#: What a browser gets by itself; links to follow are not among it.
LOADED = re.compile(r"<(?:script|img|iframe|source|video|link)\b[^>]*?\b(?:src|href)=\"?([^\"\s>]+)")
OF_STYLE = re.compile(r"(?:url\(|@import )[\"']?([^\"')]+)")


#: As README.md gives it.
COMMAND = "make docs"


@pytest.fixture(scope="module")
def site(venv: Path) -> Path:
    done = finish(COMMAND, surroundings(venv))
    assert done.returncode == 0, done.stdout
    return ROOT / "build" / "site"


def test_every_page_has_its_place(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    made = {path.relative_to(site) for path in site.rglob("*.html")}
    assert {str(page).replace("README", "index") for page in pages} <= {str(page) for page in made}
    assert "Celery with Postgres as the record" in (site / "index.html").read_text()


def test_a_browser_gets_nothing_of_it_from_another_host(site: Path) -> None:
    loaded = {found for page in site.rglob("*.html") for found in LOADED.findall(page.read_text())}
    styles = {found for style in site.rglob("*.css") for found in OF_STYLE.findall(style.read_text())}
    assert any(one.endswith(".js") for one in loaded)
    assert [one for one in loaded | styles if re.match(r"(?:\w+:)?//", one)] == []


def test_a_runbook_is_found_by_the_name_prometheus_has_for_it(site: Path) -> None:
    assert "CeleriacNoWorker" in (site / "runbooks" / "no_worker.html").read_text()


def test_a_link_out_of_docs_is_the_path_of_its_file(site: Path) -> None:
    promises = (site / "guarantees.html").read_text()
    assert '<span title="tests/postgres/enqueue/test_enqueue.py">test_enqueue</span>' in promises
    assert 'href="docs/' not in (site / "index.html").read_text()


def test_the_reference_has_every_variable_the_engine_reads(site: Path) -> None:
    read = re.findall(r'"([A-Z]+_[A-Z_]+)"', (ROOT / "celeriac" / "settings.py").read_text())
    page = (site / "settings.html").read_text()
    assert len(read) > 40
    assert [name for name in read if f"<code>{name}</code>" not in page] == []


def test_the_reference_says_of_each_option_what_it_must_be_and_means(site: Path) -> None:
    page = (site / "role-options.html").read_text()
    options = re.findall(r"<td><code>(\w+)</code></td>\s*<td>.*?</td>\s*<td>(.*?)</td>\s*<td>(.*?)</td>", page)
    prose, _, _ = page.partition("<table>")
    assert {name for name, _, _ in options} == {*RULES} - {"name"}
    assert [name for name, right, means in options if not right or not (means or f"<code>{name}</code>" in prose)] == []


def test_the_reference_has_every_command_endpoint_and_error(site: Path) -> None:
    commands, endpoints, told = ((site / f"{name}.html").read_text() for name in ("commands", "endpoints", "errors"))
    assert [name for name in names(main) if f'">celeriac {name}' not in commands] == []
    assert [
        one for one in LISTED if f"<code>{one.method} {one.path}</code></td>\n<td>{one.scope}" not in endpoints
    ] == []
    raised = {name for name, one in vars(errors).items() if inspect.isclass(one) and one.__module__ == errors.__name__}
    assert {*re.findall(r"<td><code>([\w-]+)</code></td>\s*<td>.*?</td>\s*<td>.+</td>", told)} == raised | {*KINDS}


def test_what_leads_nowhere_is_refused(tmp_path: Path, venv: Path) -> None:
    """A page, an anchor, a file of the repository; and a page that nothing leads to."""
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "one.md").write_text("# One\n\n[a](gone.md), [b](#gone), [c](../celeriac/gone.py)\n")
    (pages / "alone.md").write_text("# Alone\n")
    own = f"INHERIT: {ROOT / 'mkdocs.yml'}\nhooks: [{ROOT / 'deploy' / 'pages.py'}]\nnav: [one.md]\nextra_css: []\n"
    (tmp_path / "mkdocs.yml").write_text(own)
    done = finish(f"python -m mkdocs build --strict -f {tmp_path / 'mkdocs.yml'}", surroundings(venv))
    assert done.returncode == 1
    for wrong in ("'gone.md'", "'#gone'", "'../celeriac/gone.py'", "alone.md"):
        assert wrong in done.stdout
