"""The site that `make docs` builds of README.md and docs: whole, of this host alone, and with no link to nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

#: What a browser gets by itself; links to follow are not among it.
LOADED = re.compile(r"<(?:script|img|iframe|source|video|link)\b[^>]*?\b(?:src|href)=\"?([^\"\s>]+)")
OF_STYLE = re.compile(r"(?:url\(|@import )[\"']?([^\"')]+)")


def build(folder: Path, config: Path = ROOT / "mkdocs.yml") -> tuple[int, str]:
    """Its exit status, and what it says."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    given = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    status, said = build(folder)
    assert status == 0, said
    return folder


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
    promises = (site / "architecture.html").read_text()
    assert '<span title="tests/postgres/test_enqueue.py">test_enqueue</span>' in promises
    assert 'href="docs/' not in (site / "index.html").read_text()


def test_what_leads_nowhere_is_refused(tmp_path: Path) -> None:
    """A page, an anchor, a file of the repository; and a page that nothing leads to."""
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "one.md").write_text("# One\n\n[a](gone.md), [b](#gone), [c](../celeriac/gone.py)\n")
    (pages / "alone.md").write_text("# Alone\n")
    config = tmp_path / "mkdocs.yml"
    own = f"INHERIT: {ROOT / 'mkdocs.yml'}\nhooks: [{ROOT / 'deploy' / 'pages.py'}]\nnav: [one.md]\nextra_css: []\n"
    config.write_text(own)
    status, said = build(tmp_path / "site", config)
    assert status == 1
    for wrong in ("'gone.md'", "'#gone'", "'../celeriac/gone.py'", "alone.md"):
        assert wrong in said
