"""Which new tasks may be inserted as many of a kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from celeriac.enqueue.ready import are_alike
from celeriac.enqueue.rows import FIELDS, NewTask

ONE = NewTask(task_id="1", role="work", args="[]", kwargs="{}", is_named=False)
OTHER = replace(ONE, task_id="2", account="a", kwargs='{"n": 2}')

#: What a row may say more; those of `COMMON` may be said if all say the same.
COMMON = {"role": "other", "priority": 3, "max_retries": 2, "max_rounds": 2, "timeout": 5.0, "parent_id": 7}
COMMON |= {"enqueued_by": "somebody"}
NEVER = {"unique_key": "u", "lock_key": "l", "headers": {"x": 1}, "delay": 1.0, "at": "2100-01-01T00:00:00+00:00"}
NEVER |= {
    "expires_in": 1.0,
    "expires_at": "2100-01-01T00:00:00+00:00",
    "is_named": True,
    "retry_count": 1,
    "queue": "q",
}
NEVER |= {"workflow": "w", "barrier": "b", "place": 1, "awaits": "a"}


def test_every_field_is_thought_of() -> None:
    assert set(FIELDS) == {"task_id", "account"} | COMMON.keys() | NEVER.keys()


def test_accounts_and_arguments_may_differ() -> None:
    assert are_alike([ONE])
    assert are_alike([ONE, OTHER])


@pytest.mark.parametrize(("field", "value"), COMMON.items())
def test_what_all_have_in_common_may_be_said_but_not_by_some(field: str, value: Any) -> None:
    said = {field: value}
    assert are_alike([replace(ONE, **said), replace(OTHER, **said)])
    assert not are_alike([ONE, replace(OTHER, **said)])
    assert not are_alike([replace(ONE, **said), OTHER])


@pytest.mark.parametrize(("field", "value"), NEVER.items())
def test_what_needs_more_than_the_mere_insert_is_never_alike(field: str, value: Any) -> None:
    said = {field: value}
    assert not are_alike([replace(ONE, **said), replace(OTHER, **said)])
    assert not are_alike([ONE, replace(OTHER, **said)])
