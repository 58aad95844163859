"""docs/architecture.md says of each index of the rooms what it serves, and names none that is not there."""

from __future__ import annotations

import re

from tests.postgres.backlog import ROOMS
from tests.processes import ROOT, Rows

INDEXES = "SELECT indexname FROM pg_indexes WHERE schemaname = 'celeriac' AND tablename = ANY (:rooms)"


def told() -> list[str]:
    """The first column of the table below its heading."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("### What each room's index serves")[2].partition("\n#")[0]
    columns = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for column in columns for name in re.findall(r"`(\w+)`", column)]


def test_each_index_of_a_room_is_told_once_with_what_it_serves(rows: Rows) -> None:
    there = [name for (name,) in rows(INDEXES, rooms=[*ROOMS, "ended", "tickets"])]
    assert sorted(told()) == sorted(there)
