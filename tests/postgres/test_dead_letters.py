"""Dead letters are listed, shown, replayed once their reason is mended, and discarded; each end is audited."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from click.testing import CliRunner, Result

from celeriac import Celeriac, insights
from celeriac.cli import within_celery
from celeriac.enqueue import adopted
from celeriac.enqueue.adopted import MOST_KEPT, Letter
from celeriac.enqueue.foreign import letter_of
from celeriac.errors import BadValue, NotAdopted, Unknown, UnknownRole
from celeriac.operate import dead_letters
from celeriac.repair import prune
from celeriac.seam.dead_letters import replay
from tests.processes import Rows

Run = Callable[..., Result]
Bury = Callable[..., int]

DONE, USAGE, REFUSED = 0, 2, 3


@pytest.fixture
def shop(app: Celeriac) -> Celeriac:
    @app.task(role="charge", prompt=False, shared=False, unique_by="order")
    def charge(order: int) -> None: ...

    app.register_roles()
    return app


@pytest.fixture
def bury(shop: Celeriac) -> Bury:
    """`bury("charge", 7)`: the dead letter's id."""

    def letter(name: str = "charge", *args: Any, why: str = "nobody took it", **options: Any) -> int:
        plain = Celery("plain", broker="memory://", set_as_current=False)
        with plain.connection_for_write() as connection:
            plain.send_task(name, args, connection=connection, **options)
            message = connection.default_channel._queue_for("celery").get()
        return buried(shop, letter_of(json.dumps(message).encode(), why))

    return letter


def buried(app: Celeriac, letter: Letter) -> int:
    with app.database.transaction() as connection:
        adopted.bury(connection, [letter])
    with app.database.statement() as connection:
        return int(insights.dead_letters(connection, limit=1)[0]["id"])


@pytest.fixture
def run(shop: Celeriac) -> Run:
    """`run("show", 7)`: as `celery -A … celeriac dead-letters show 7`."""

    def invoke(*arguments: object) -> Result:
        given = ["dead-letters", *map(str, arguments)]
        return CliRunner().invoke(within_celery, given, obj=SimpleNamespace(app=shop))

    return invoke


def value(result: Result, status: int = DONE) -> Any:
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def audited(rows: Rows) -> list[tuple[Any, ...]]:
    return rows("SELECT action, kind, target, after, why FROM celeriac.audit ORDER BY id")


def test_they_are_listed_newest_first_by_the_task_they_were_for(shop: Celeriac, bury: Bury, run: Run) -> None:
    first, other, last = bury("charge", 1), bury("refund", 2), bury("charge", 3)
    assert [row["id"] for row in value(run("list", "--json"))] == [last, other, first]
    assert [row["id"] for row in value(run("list", "--name", "charge", "--json"))] == [last, first]
    assert [row["id"] for row in value(run("list", "--name", "charge", "--before", last, "--json"))] == [first]
    assert [row["id"] for row in value(run("list", "--before", other, "--limit", 1, "--json"))] == [first]
    assert "nobody took it" in run("list").stdout
    with shop.database.statement() as connection, pytest.raises(BadValue):
        insights.dead_letters(connection, limit=0)


def test_one_is_shown_with_its_arguments_and_the_message_itself(bury: Bury, run: Run) -> None:
    letter = bury("refund", 7, task_id="mine", argsrepr="(7,)")
    shown = value(run("show", letter, "--json"))
    assert (shown["name"], shown["task_id"], shown["args"], shown["kwargs"]) == ("refund", "mine", [7], {})
    assert json.loads(shown["message"])["headers"]["id"] == "mine"
    assert "refund" in run("show", letter).stdout
    assert run("show", letter + 1).exit_code == REFUSED


def test_what_would_steer_a_terminal_is_shown_without_doing_so(shop: Celeriac, run: Run) -> None:
    letter = buried(shop, letter_of(b"\x1b[2J\xff", "noise"))
    assert "\x1b" not in run("show", letter).stdout


def test_one_that_is_replayed_is_the_task_it_was_meant_to_be(bury: Bury, run: Run, rows: Rows) -> None:
    """Its role adopts nothing: somebody has looked at this one."""
    letter = bury("charge", 7, task_id="mine", priority=3)
    done = value(run("replay", letter, "--why", "it is theirs", "--json"))
    assert done["refused"] == {}
    assert rows("SELECT task_id, kwargs, unique_key, priority FROM worker_tasks") == [("mine", {"order": 7}, "7", -3)]
    assert rows("SELECT FROM dead_letters") == []
    assert audited(rows) == [
        ("replay", "dead_letter", str(letter), {"role": "charge", "task_id": "mine"}, "it is theirs")
    ]


def test_one_whose_id_became_a_task_meanwhile_is_no_second_one(
    shop: Celeriac, bury: Bury, run: Run, rows: Rows
) -> None:
    rows("INSERT INTO adopted (task_id) VALUES ('mine')")
    done = value(run("replay", bury("charge", 7, task_id="mine"), "--json"))
    assert done["done"][0]["after"] is None
    assert rows("SELECT FROM worker_tasks") == rows("SELECT FROM dead_letters") == []


def test_what_still_fits_no_role_stays(shop: Celeriac, bury: Bury, run: Run, rows: Rows) -> None:
    unknown, bad, noise = bury("refund", 1), bury("charge", "a", "b"), buried(shop, letter_of(b"noise", "noise"))
    good = bury("charge", 1)
    result = run("replay", unknown, bad, noise, good, 10**9)
    assert result.exit_code == REFUSED
    assert "1 done, 4 not" in result.output
    assert {letter for (letter,) in rows("SELECT id FROM dead_letters")} == {unknown, bad, noise}
    with pytest.raises(UnknownRole), shop.database.transaction() as connection:
        replay(shop, connection, unknown, by="me")
    with pytest.raises(Unknown), shop.database.transaction() as connection:
        replay(shop, connection, 10**9, by="me")


def test_what_postgres_refuses_stays_too_and_holds_up_no_other(bury: Bury, run: Run, rows: Rows) -> None:
    rows("ALTER TABLE celeriac.tasks ADD CONSTRAINT no_seven CHECK (kwargs <> '{\"order\": 7}')")
    seven = [bury("charge", order) for order in (6, 7, 8)][1]
    result = run("replay", "--name", "charge", "--yes")
    assert result.exit_code == REFUSED
    assert "2 done, 1 not" in result.output
    assert f"{seven}: charge: Postgres refused it" in result.output
    assert rows("SELECT id FROM dead_letters") == [(seven,)]


def test_a_replay_that_breaks_off_has_kicked_what_it_has_done(
    shop: Celeriac, bury: Bury, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = bury("charge", 1), bury("charge", 2)
    kicked: list[set[str]] = []
    monkeypatch.setattr(shop, "kick", kicked.append)
    take = dead_letters.take
    monkeypatch.setattr(dead_letters, "take", lambda c, letter: 1 / 0 if letter == first else take(c, letter))
    assert isinstance(run("replay", second, first).exception, ZeroDivisionError)
    assert kicked == [{"charge"}]


def test_one_of_which_only_the_beginning_is_kept_is_not_replayed(shop: Celeriac) -> None:
    letter = buried(shop, Letter(b" " * (MOST_KEPT + 1), "too large"))
    with pytest.raises(NotAdopted, match="only the first"), shop.database.transaction() as connection:
        replay(shop, connection, letter, by="me")


def test_all_of_a_task_are_replayed_when_somebody_says_so(bury: Bury, run: Run, rows: Rows) -> None:
    for order in range(3):
        bury("charge", order)
    other = bury("refund")
    assert run("replay", "--name", "charge").exit_code != DONE, "nobody said yes"
    assert "3 done, 0 not" in run("replay", "--name", "charge", "--yes").stdout
    assert rows("SELECT id FROM dead_letters") == [(other,)]
    assert rows.one("SELECT count(*) FROM worker_tasks") == 3
    assert run("replay").exit_code == USAGE
    assert run("replay", other, "--name", "charge").exit_code == USAGE


def test_what_nobody_wants_is_discarded(bury: Bury, run: Run, rows: Rows) -> None:
    letter = bury("refund", 7, task_id="mine")
    assert "1 done" in run("discard", letter).stdout
    assert rows("SELECT FROM dead_letters") == []
    assert audited(rows) == [("discard", "dead_letter", str(letter), None, None)]
    assert rows.one("SELECT before ->> 'reason' FROM celeriac.audit") == "nobody took it"
    assert run("discard", letter).exit_code == REFUSED


def test_old_ones_go_and_so_does_what_the_ledger_need_not_know(shop: Celeriac, bury: Bury, rows: Rows) -> None:
    old, new = bury("refund", 1), bury("refund", 2)
    rows("UPDATE dead_letters SET at = now() - interval '31 days' WHERE id = :old", old=old)
    rows("INSERT INTO adopted (task_id, at) VALUES ('old', now() - interval '8 days'), ('new', now())")
    assert prune.prune_finished(shop) == 2
    assert rows("SELECT id FROM dead_letters") == [(new,)]
    assert rows("SELECT task_id FROM adopted") == [("new",)]
