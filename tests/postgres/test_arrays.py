"""Arrays that are handed to Postgres as texts arrive as they were."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celeriac.store.connections import Database
from celeriac.store.encoding import array, texts
from tests.examples import EXAMPLES

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=EXAMPLES)

#: What Postgres stores: neither NUL nor half a surrogate pair.
STORABLE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))

ODD = st.sampled_from(["", "NULL", "null", '"', "\\", '\\"', "{", "}", ",", "{a,b}", " a ", "\n\t", "'", "ä€😀"])


@given(st.lists(STORABLE | ODD))
@SHARED
def test_any_strings(database: Database, strings: list[str]) -> None:
    with database.statement() as connection:
        arrived = connection.exec_driver_sql("SELECT CAST(%s AS text[])", (texts(strings),)).scalar_one()
    assert arrived == strings


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
@SHARED
def test_any_numbers(database: Database, numbers: list[int]) -> None:
    with database.statement() as connection:
        arrived = connection.exec_driver_sql("SELECT CAST(%s AS bigint[])", (array(numbers),)).scalar_one()
    assert arrived == numbers
