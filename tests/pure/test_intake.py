"""What is accepted can be stored, read back and run; the rest is refused before anything is written."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

import pytest
from kombu.exceptions import EncodeError

from celeriac.enqueue.intake import arguments_of, from_definition, new_task, new_tasks
from celeriac.enqueue.rows import NewTask
from celeriac.errors import ArgumentsTooLarge, BadArguments, EnqueueRefused
from celeriac.roles.bounds import ANY_PRIORITY, LONGEST_KEY
from celeriac.roles.role import IN_CODE, Role
from celeriac.roles.signature import Signature

NO_LIMIT = float("inf")


@pytest.mark.parametrize("value", [object(), math.nan, "\x00"])
def test_arguments_that_cannot_be_stored_are_refused(value: Any) -> None:
    with pytest.raises(BadArguments, match=r"^build: the arguments cannot be stored: .*; nothing was enqueued$"):
        arguments_of("build", {"args": [value]}, NO_LIMIT)


def test_arguments_that_cannot_be_stored_are_to_celery_what_cannot_be_encoded() -> None:
    with pytest.raises(EncodeError):
        arguments_of("build", {"args": [object()]}, NO_LIMIT)


def test_arguments_that_are_too_large_are_refused() -> None:
    with pytest.raises(ArgumentsTooLarge, match=r"^build: the arguments take 100 bytes, the limit is 99 .*enqueued$"):
        arguments_of("build", "x" * 98, 99)


def build(account_id: int, store_id: int = 7, *, note: str = "") -> None: ...


ROLE = Role(name="build", fair_by="account_id", lock_by="store_id", unique_by="{account_id}/{store_id}", priority=5)
SIGNATURE = Signature.of(build, role="build")


def task(*args: Any, role: Role = ROLE, kwargs: dict[str, Any] | None = None, **options: Any) -> NewTask:
    task_id = options.pop("task_id", "id")
    return new_task(role, SIGNATURE, task_id, args, kwargs or {}, **({"limit": NO_LIMIT} | options))


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_arguments_nest_as_deep_as_in_sql() -> None:
    """`celeriac.enqueue` takes 98 levels in an argument as well."""
    assert task(3, kwargs={"note": nested(98)}).arguments[1]["note"] == nested(98)
    with pytest.raises(BadArguments, match="nested more than 100 levels deep"):
        task(3, kwargs={"note": nested(99)})


def test_what_nests_deeper_than_python_reads_is_refused_like_any_other() -> None:
    for levels in range(900, 1010):
        with pytest.raises(BadArguments, match="cannot be stored"):
            task(3, kwargs={"note": nested(levels)})


class Reading(float):
    """As numpy's: the driver would write what this says."""

    def __repr__(self) -> str:
        return f"Reading({float(self)})"


@pytest.mark.parametrize("option", ["timeout", "delay", "expires_in"])
def test_seconds_are_plain_numbers_whatever_was_given(option: str) -> None:
    assert type(getattr(task(3, **{option: Reading(2.5)}), option)) is float


def test_options_of_a_bulk_are_looked_at_even_where_it_has_no_calls() -> None:
    with pytest.raises(BadArguments, match="priority=1000001"):
        new_tasks(ROLE, SIGNATURE, [], limit=NO_LIMIT, batch=2, priority=1_000_001)


def test_a_call_becomes_a_row_with_its_keys_and_its_roles_defaults() -> None:
    made = task(3, kwargs={"note": "x"})
    assert (made.account, made.lock_key, made.unique_key, made.priority) == ("3", "store_id:7", "3/7", 5)
    assert made.arguments == ([], {"account_id": 3, "note": "x"})
    assert (made.max_retries, made.max_rounds) == (ROLE.max_retries, ROLE.max_rounds)


def test_a_role_that_does_not_store_by_name_keeps_the_call_as_it_was() -> None:
    made = task(3, 4, role=Role(name="build", by_name=False), kwargs={"note": "x"})
    assert made.arguments == ([3, 4], {"note": "x"})
    assert (made.account, made.lock_key, made.unique_key) == ("", None, None)


def test_positional_only_arguments_stay_positional() -> None:
    signature = Signature.of(lambda site, /, *rest: (site, rest), role="build")
    made = new_task(Role(name="build", fair_by="site"), signature, "id", (3, 4), {}, limit=NO_LIMIT)
    assert (made.arguments, made.account) == (([3, 4], {}), "3")


def test_a_positional_only_argument_is_not_named_whatever_python_makes_of_it() -> None:
    """From 3.13 on `**more` takes the name, and the row would run as another call."""
    signature = Signature.of(lambda site=1, /, **more: (site, more), role="build")
    with pytest.raises(BadArguments, match=r"site.*nothing was enqueued$"):
        new_task(Role(name="build"), signature, "id", (), {"site": None}, limit=NO_LIMIT)


def test_a_unique_key_is_the_value_alone_as_it_holds_within_its_role() -> None:
    assert task(3, role=Role(name="build", unique_by="store_id")).unique_key == "7"


def test_what_the_call_says_goes_before_what_the_role_says() -> None:
    made = task(3, account=9, lock_key="other", unique_key="mine", priority=-4, max_retries=0, timeout=1.5)
    assert (made.account, made.lock_key, made.unique_key) == ("9", "other", "mine")
    assert (made.priority, made.max_retries, made.timeout) == (-4, 0, 1.5)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"shop": 2})])
def test_a_call_that_does_not_fit_the_handler_is_refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadArguments, match="nothing was enqueued"):
        task(*args, kwargs=kwargs)


def test_arguments_beyond_the_limit_are_refused() -> None:
    with pytest.raises(ArgumentsTooLarge):
        task(3, kwargs={"note": "x" * 100}, limit=50)


LONG = "x" * (LONGEST_KEY + 1)


#: In Postgres they are in the years 10000 and 1 BC: rows that nobody could read any more.
UNREADABLE = ("9999-12-31T23:00:00-05:00", "0001-01-01T00:30:00+05:00", "9999-12-31", "0001-01-01")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[(key, bad) for key in ("account", "lock_key", "unique_key", "task_id") for bad in (LONG, "\x00", "\ud83d")],
        ("task_id", ""),
        *[("priority", bad) for bad in (1_000_001, -1_000_001, 1.5, "high", True)],
        *[("max_retries", bad) for bad in (-1, 1.5, "3", 10**10)],
        *[("timeout", bad) for bad in (0, -1, math.nan, math.inf, "5", True)],
        *[("delay", bad) for bad in (math.nan, math.inf, -math.inf, 1e12, -1e12, "5")],
        *[("expires_in", bad) for bad in (math.nan, math.inf, "5")],
        *[("at", bad) for bad in ("soon", "", 5, "2026-13-01")],
        *[("expires_at", bad) for bad in ("soon", "now()", datetime(2026, 1, 1))],
        *[(time, bad) for time in ("at", "expires_at") for bad in UNREADABLE],
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_what_postgres_would_refuse_is_refused_before_it_breaks_the_callers_transaction(
    option: str, value: Any
) -> None:
    with pytest.raises(EnqueueRefused, match=f"^build: {option}=.*: give .*nothing was enqueued"):
        task(3, **{option: value})


BOUNDED = Role(name="build", priority_range=(0, 100))


@pytest.mark.parametrize("priority", [-1, 101])
def test_a_priority_outside_the_roles_range_is_refused_wherever_it_is_said(priority: int) -> None:
    role, signature = elsewhere(BOUNDED)
    with pytest.raises(
        BadArguments, match=f"^build: priority={priority}: give a whole number from 0 to 100; nothing was written"
    ):
        task(3, role=BOUNDED, priority=priority)
    with pytest.raises(BadArguments, match="nothing was written"):
        new_task(role, signature, "id", (3,), {}, limit=NO_LIMIT, priority=priority)


@pytest.mark.parametrize("priority", [0, 100])
def test_the_bounds_of_a_range_belong_to_it(priority: int) -> None:
    assert task(3, role=BOUNDED, priority=priority).priority == priority


def test_a_definition_of_an_older_release_has_no_range() -> None:
    definition = {k: v for k, v in BOUNDED.definition().items() if k != "priority_range"}
    role, _ = from_definition("build", definition, SIGNATURE.describe())
    assert role.priority_range == ANY_PRIORITY


def test_a_key_made_from_a_long_argument_is_refused() -> None:
    with pytest.raises(BadArguments, match="unique_key="):
        new_task(Role(name="build", unique_by="note"), SIGNATURE, "id", (3,), {"note": LONG}, limit=NO_LIMIT)


@pytest.mark.parametrize("delay", [0, -5, 1.5, 86_400 * 365])
def test_a_delay_may_lie_in_the_past(delay: float) -> None:
    assert task(3, delay=delay, expires_in=delay).delay == delay


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ("2026-03-01T12:00:00+02:00", "2026-03-01T12:00:00+02:00"),
        ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00+00:00"),
        ("2026-03-01T12:00:00", "2026-03-01T12:00:00+00:00"),
        ("2026-W09-7", "2026-03-01T00:00:00+00:00"),
    ],
)
def test_a_time_is_handed_on_with_its_zone_so_that_the_sessions_does_not_matter(given: str, at: str) -> None:
    made = task(3, at=given, expires_at=given)
    assert (made.at, made.expires_at) == (at, at)


# -- roles declared elsewhere ------------------------------------------------------------------------------------------


def elsewhere(role: Role) -> tuple[Role, Signature]:
    """As another code base reads it from `roles`."""
    read = json.loads(json.dumps([role.definition(), SIGNATURE.describe()]))
    return from_definition(role.name, *read)


def test_by_name_gives_the_same_row_as_the_declaring_code() -> None:
    role, signature = elsewhere(ROLE)
    assert new_task(role, signature, "id", (3,), {"note": "x"}, limit=NO_LIMIT) == task(3, kwargs={"note": "x"})


def test_a_key_that_is_code_can_only_be_derived_where_it_is_declared() -> None:
    role, signature = elsewhere(Role(name="build", lock_by=lambda _: "all"))
    assert role.definition()["lock_by"] == IN_CODE
    with pytest.raises(BadArguments, match=r"lock_by is a function.*: give lock_key"):
        new_task(role, signature, "id", (3,), {}, limit=NO_LIMIT)
    assert new_task(role, signature, "id", (3,), {}, limit=NO_LIMIT, lock_key="all").lock_key == "all"


# -- canvas ------------------------------------------------------------------------------------------------------------
