"""What `python -m tests.matrix.mixed` judges by can fail."""

from __future__ import annotations

import pytest

from tests.matrix.mixed import TABLES, judge
from tests.processes import Rows

WELL = """
INSERT INTO worker_tasks (task_id, role, status) VALUES ('a', 'first', 'completed'), ('b', 'first', 'completed');
INSERT INTO asked VALUES (1, 'old', 'a'), (2, 'new', 'b');
INSERT INTO began VALUES (1, 'first', 0, 'old'), (1, 'first', 1, 'new'), (2, 'first', 0, 'new');
INSERT INTO written VALUES (1, 'second', 'old'), (2, 'second', 'new')
"""

BADLY = {
    "lost 1": "INSERT INTO worker_tasks (task_id, role) VALUES ('c', 'first'); INSERT INTO asked VALUES (3, '', 'c')",
    "lost 2": "UPDATE asked SET id = 'nobody knows it' || n",
    "without their follow-up 1": "DELETE FROM written WHERE n = 2; INSERT INTO written VALUES (2, 'first', 'new')",
    "begun twice 1": "INSERT INTO began VALUES (1, 'first', 1, 'old')",
    "written twice 1": "INSERT INTO written VALUES (2, 'second', 'old')",
    "by this tree: 0": "UPDATE written SET release = 'old'",
}


def test_two_releases_that_share_the_work_pass(rows: Rows, capsys: pytest.CaptureFixture[str]) -> None:
    rows(TABLES + WELL)
    assert judge(rows, "v1") == 0
    assert "runs by v1: 1, by this tree: 1\nlost 0, without their follow-up 0; begun twice 0" in capsys.readouterr().out


@pytest.mark.parametrize("says", BADLY)
def test_what_went_wrong_is_told(says: str, rows: Rows, capsys: pytest.CaptureFixture[str]) -> None:
    rows(TABLES + WELL)
    rows(BADLY[says])
    assert judge(rows, "v1") == 1
    assert says in capsys.readouterr().out
