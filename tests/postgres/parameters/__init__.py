"""What each statement that meets a room is asked for: 60 of what is there."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from tests.postgres.parameters.of_insights import of_insights
from tests.postgres.parameters.of_operators import of_operators
from tests.postgres.parameters.of_tasks import of_tasks
from tests.postgres.parameters.selected import Given, Selected


def statements(connection: Connection) -> Mapping[str, list[Given]]:
    there = Selected(connection)
    return {**of_tasks(there), **of_operators(there), **of_insights(there)}
