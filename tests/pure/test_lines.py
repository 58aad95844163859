"""The log's lines tell of a task what its call lets them tell."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from celeriac.roles.role import Role
from celeriac.run import lines
from celeriac.store.started import Started


def started(**headers: Any) -> Started:
    kept = {"retry_count": 0, "max_retries": None, "tries": 0, "max_rounds": 1, "losses": 0, "priority": 0}
    whose = {"timeout": None, "parent_id": None, "lock_key": None, "token": "t"}
    return Started(
        id=7, task_id="i", role="bill", args=[], kwargs={"patient_id": 4711}, headers=headers, **kept, **whose
    )


@pytest.mark.parametrize("mask", [{}, {"argsrepr": "(***)"}, {"kwargsrepr": "{***}"}])
def test_a_masked_argument_is_in_no_line(mask: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines.claimed(started(**mask), Role(name="bill", lock_by="patient_id"))
    (line,) = caplog.records
    assert ("4711" in caplog.text) is (not mask)
    assert ("patient" in line.data) is (not mask)  # type: ignore[attr-defined]
