"""What a pass writes down: enough to replay what it decided."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from celeriac.dispatch import record, select
from celeriac.dispatch.fairness import Claimant, allocate
from celeriac.store.connections import Database
from tests.postgres.passes import Passes, Waiting, finish, policy, role
from tests.postgres.plans import explain
from tests.processes import Rows


def test_a_pass_writes_down_what_it_saw_and_gave(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    policy(rows, "b", weight=2, cap=50)
    waiting(a=5, b=3)
    passes.given(role(batch_size=3))
    waiting(c=1)
    passes.given()
    columns = "role, by, free, claimants, given, cursor_before, cursor_after, why_nothing, repeated"
    first, second = passes.written(columns)
    a, b = {"account": "a", "waiting": 3}, {"account": "b", "waiting": 3, "weight": 2.0, "cap": 50}
    assert first == ("work", "test", 3, [a, b], {"a": 1, "b": 2}, "", "b", None, 0)
    a, b = {"account": "a", "waiting": 4, "holding": 1}, {**b, "waiting": 1, "holding": 2}
    c = {"account": "c", "waiting": 1}
    assert second == ("work", "test", 60, [c, a, b], {"a": 4, "b": 1, "c": 1}, "b", "a", None, 0)
    assert all(took > 0 for (took,) in passes.written("took_ms"))


def test_what_an_only_account_with_a_cap_has_waiting_is_told_as_it_is(
    passes: Passes, waiting: Waiting, rows: Rows
) -> None:
    policy(rows, "a", cap=2)
    waiting(a=30)
    assert passes.given(role(batch_size=10)) == {"a": 2}
    assert passes.written("claimants, given") == [([{"account": "a", "waiting": 10, "cap": 2}], {"a": 2})]


def test_empty_passes_for_one_reason_are_one_row(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    reasons = "SELECT why_nothing, repeated, last_at > at FROM celeriac.passes ORDER BY id"
    for _ in range(3):
        assert passes.why_nothing() == "nothing is ready"
    assert rows(reasons) == [("nothing is ready", 2, True)]
    waiting(a=3)
    passes.given(role(window=2))
    for _ in range(2):
        assert passes.why_nothing(role(window=2)) == "the window is full"
    finish(rows)
    passes.finished()
    for _ in range(2):
        passes.why_nothing()
    assert [row[:2] for row in rows(reasons)] == [
        ("nothing is ready", 2), (None, 0), ("the window is full", 1), (None, 0), ("nothing is ready", 1)
    ]  # fmt: skip
    assert rows("SELECT passes FROM batchers") == [(2,)], "those that claimed anything"


def test_each_roles_empty_passes_are_its_own(passes: Passes) -> None:
    for name in ("one", "two", "one", "two"):
        passes.why_nothing(role(name=name))
    assert passes.written("role, repeated") == [("one", 1), ("two", 1)]


@pytest.mark.parametrize("seed", range(3))
def test_what_a_pass_decided_is_answered_by_replaying_it(
    passes: Passes, waiting: Waiting, rows: Rows, seed: int
) -> None:
    chance = random.Random(seed)
    for n in range(12):
        if chance.random() < 0.5:
            cap = chance.choice([None, 0, 7])
            policy(rows, f"a{n}", weight=chance.choice([0.5, 1, 3]), cap=cap, paused=chance.random() < 0.2)
    for _ in range(6):
        waiting(**{f"a{n}": chance.randint(1, 90) for n in chance.sample(range(12), 4)})
        passes.given(role(batch_size=chance.randint(1, 60), window=150))
        if chance.random() < 0.3:
            finish(rows)
    stored = passes.written("claimants, free, given, why_nothing")
    assert len(stored) >= 5
    for claimants, free, given, _ in stored:
        assert allocate([Claimant(**c) for c in claimants], free) == given


@pytest.mark.usefixtures("old_transaction")
def test_under_an_old_transaction_the_roles_row_is_found_among_few_versions(database: Database, rows: Rows) -> None:
    """Each pass leaves a version of it that may not be vacuumed."""
    written: dict[str, Any] = dict.fromkeys(("before", "after"), "") | dict.fromkeys(("claimants", "given"), "{}")
    written |= {"role": "work", "by": "test", "free": 0, "took_ms": 0.0, "held_since": "-infinity"}
    written |= {"held_next": "-infinity", "held_xid": "1"}
    written |= {"points": json.dumps([random.random() for _ in range(60)]), "seconds": None}
    for _ in range(300):
        with database.transaction() as connection:
            connection.execute(record.RECORD, written)
    with database.transaction() as connection:
        survey = explain(connection, select.SURVEY, role="work", queue="work")
        once_more = explain(connection, record.RECORD, **written)
    (pages,) = rows("SELECT pg_relation_size('celeriac.batchers') / 8192")[0]
    assert survey.pages < int(str(pages)) > once_more.pages
    assert rows("SELECT generation, passes FROM batchers") == [(3, 301)]


def test_a_pass_that_claims_nothing_says_since_when_tickets_are_held(passes: Passes, rows: Rows) -> None:
    """Tasks that start without passes leave tickets, too, and each look walks over those since then."""
    rows("INSERT INTO celeriac.batchers (role, held_since) VALUES ('work', now() - interval '10 minutes')")
    minutes = "SELECT now() - held_since < interval '1 minute' FROM celeriac.batchers"
    assert passes.why_nothing() == "nothing is ready"
    rows("UPDATE celeriac.batchers SET held_next = now() - interval '30 seconds', held_xid = '3'")
    assert passes.why_nothing() == "nothing is ready"
    assert rows(minutes) == [(False,)], "once a minute"
    rows("UPDATE celeriac.batchers SET held_next = now() - interval '2 minutes'")
    passes.why_nothing()
    minutes = minutes.replace("1 minute", "3 minutes")
    assert rows(minutes) == [(True,)]
    said = "SELECT held_since FROM celeriac.batchers"
    before = rows(said)
    passes.why_nothing()
    assert rows(said) == before, "once a minute"


def test_many_empty_passes_are_not_one_row_for_ever(passes: Passes, rows: Rows) -> None:
    assert passes.why_nothing() == "nothing is ready"
    rows("UPDATE celeriac.passes SET repeated = 1000")
    passes.why_nothing()
    assert passes.written("repeated") == [(1000,), (0,)]
