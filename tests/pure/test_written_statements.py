"""A statement of the pages for operators keeps nobody waiting for long: one that writes begins with a limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.operations import LIMIT
from tests.processes import ROOT

DOCS = ROOT / "docs"
PAGES = [DOCS / "operations.md", DOCS / "monitoring.md", *sorted((DOCS / "runbooks").glob("*.md"))]

CODE = re.compile(r"```sql\n(.*?)```|`([^`\n]+)`", re.DOTALL)

#: A statement that takes a lock for which it may have to wait. What is built concurrently keeps nobody waiting.
WRITES = re.compile(
    r"(?:^|;)\s*(?:UPDATE|INSERT INTO|DELETE FROM|TRUNCATE|LOCK TABLE|REINDEX (?!.*CONCURRENTLY)|VACUUM FULL|CLUSTER"
    r"|(?:ALTER|DROP) (?:TABLE|INDEX|FUNCTION|VIEW)|CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY)|CREATE TABLE) \w"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_statement_that_writes_begins_with_a_limit_of_its_waits(page: Path) -> None:
    written = ["".join(found.groups(default="")) for found in CODE.finditer(page.read_text())]
    assert [code for code in written if WRITES.search(code) and not code.startswith(LIMIT)] == []


def test_statements_that_write_are_found() -> None:
    assert sum(len(WRITES.findall(page.read_text().replace("`", ";"))) for page in PAGES) > 5
