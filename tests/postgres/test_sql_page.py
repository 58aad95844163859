"""The page about SQL tells of the view `worker_tasks` as it is."""

from __future__ import annotations

import re

from tests.processes import ROOT, Rows

COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'celeriac' AND table_name = :view"


def test_the_page_names_every_column_of_the_view_once(rows: Rows) -> None:
    page = (ROOT / "docs" / "sql.md").read_text()
    table = page.partition("## Tasks")[2].partition("Behind it")[0]
    named = [
        name for line in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    ]
    assert sorted(named) == sorted(name for (name,) in rows(COLUMNS, view="worker_tasks"))
