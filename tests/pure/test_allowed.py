"""Lists of what a token may enqueue: a refusal says what would be right, and that does not fit what was refused."""

from __future__ import annotations

import pytest

from celeriac.operate.allowed import MOST, Allowed
from celeriac.roles.bounds import CALL, wrong


@pytest.mark.parametrize(
    ("allowed", "sentence"),
    [
        (
            Allowed(keys=[""]),
            "keys=['']: give at most 1,000 keys, each a text of at most 1000 bytes without NUL, and not empty",
        ),
        (Allowed(accounts=["é" * 501]), "accounts, each a text of at most 1000 bytes without NUL"),
        (Allowed(roles=["work "]), "roles, each 1 to 200 printable characters without a space at an end, not . or .."),
        (Allowed(keys=["a"] * (MOST + 1)), "give at most 1,000 keys"),
    ],
)
def test_a_list_that_is_refused_is_told_what_would_be_right(allowed: Allowed, sentence: str) -> None:
    assert sentence in str(allowed.wrong())


def test_tasks_without_an_account_may_be_allowed() -> None:
    assert Allowed(["work"], ["", "acme*"], ["acme:*"], [0, 5]).wrong() is None


def test_an_empty_id_of_a_task_is_told_what_would_be_right() -> None:
    assert wrong(CALL, {"task_id": ""}) == "task_id='': give a text of at most 1000 bytes without NUL, and not empty"
