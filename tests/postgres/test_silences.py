"""An operator silences an alert until an instant; it is written down who did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from celeriac import insights
from celeriac.errors import BadValue, Unknown
from celeriac.operate.silences import end_silence, silence
from celeriac.store.connections import Database
from tests.processes import Rows

SOON = datetime.now(UTC) + timedelta(days=1)


def test_a_silence_is_shown_with_its_alert_and_audited(database: Database, rows: Rows) -> None:
    rows("""INSERT INTO alerts (name, subject, value, threshold)
        VALUES ('queue_depth', 'a', 2, 1), ('queue_depth', 'b', 2, 1), ('long_wait', 'a', 2, 1)""")
    with database.transaction() as connection:
        silence(connection, "queue_depth", "a", until=SOON, by="ann", why="a flood")
        silence(connection, "long_wait", until=SOON, by="ann")
        found = insights.firing(connection)
        assert [one["why"] for one in insights.silences(connection)] == [None, "a flood"]
    assert {(one["name"], one["subject"]) for one in found if one["silenced_until"] == SOON} == {
        ("queue_depth", "a"), ("long_wait", "a")
    }  # fmt: skip
    assert rows("SELECT action, kind, target, why FROM audit ORDER BY id") == [
        ("silence", "alert", "queue_depth a", "a flood"), ("silence", "alert", "long_wait", None)
    ]  # fmt: skip


def test_one_that_is_set_again_counts_anew_and_can_be_ended(database: Database, rows: Rows) -> None:
    with database.transaction() as connection:
        silence(connection, "queue_depth", seconds=10, by="ann")
        change = silence(connection, "queue_depth", until=SOON, by="bob")
        assert change.after == {"until": SOON.isoformat()}
        assert change.before is not None
        assert end_silence(connection, "queue_depth", by="bob").after is None
        assert insights.silences(connection) == []
        with pytest.raises(Unknown, match="queue_depth is not silenced"):
            end_silence(connection, "queue_depth", by="bob")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"seconds": 1, "until": SOON},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"until": datetime(2020, 1, 1, tzinfo=UTC)},
        {"seconds": 1, "subject": "\x00"},
        {"seconds": 1, "subject": "x" * 1001},
    ],
)
def test_what_is_no_silence_is_refused(database: Database, rows: Rows, wrong: dict[str, Any]) -> None:
    with database.transaction() as connection, pytest.raises(BadValue, match="nothing was changed"):
        silence(connection, "queue_depth", by="ann", **wrong)
    assert rows("SELECT FROM alert_silences") == []
