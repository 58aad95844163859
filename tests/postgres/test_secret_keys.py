"""No key is made of a secret, no id tells one, and what has one can be edited without seeing it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from celery import chord
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, ConfigurationError, Hashed, Permanent, Task, insights
from celeriac.enqueue.intake import new_task
from celeriac.errors import BadArguments, BadValue, IdTaken, TokenLimited
from celeriac.operate.allowed import Allowed
from celeriac.operate.tokens import Bearer
from tests.postgres.workflows import run_all
from tests.processes import Rows

CARD = "4111-1111-1111-1111"


def order_of(given: Mapping[str, Any]) -> str:
    return f"order {given['order']['card']}"


@pytest.mark.parametrize("key", ["{order[card]}", "{order.card}", "{user}:{card}", "card"])
@pytest.mark.parametrize("option", ["lock_by", "unique_by", "fair_by"])
def test_a_key_that_names_a_secret_is_refused_as_it_is_declared(app: Celeriac, option: str, key: str) -> None:
    def pay(order: dict[str, Any], user: str = "", card: str = "") -> None: ...

    with pytest.raises(ConfigurationError, match=rf"may not be made of 'card'.*{option}=Hashed\("):
        app.task(role="pay", shared=False, sensitive=("card",), **{option: key})(pay)


@pytest.mark.parametrize("key", ["order", "{order!r}", order_of, lambda given: hash(given["order"]["card"])])
@pytest.mark.parametrize("option", ["lock_by", "unique_by", "fair_by"])
def test_a_key_that_is_another_with_another_secret_is_refused_as_it_is_enqueued(
    app: Celeriac, rows: Rows, option: str, key: Any
) -> None:
    @app.task(role="pay", shared=False, sensitive=("card",), **{option: key})
    def pay(order: dict[str, Any]) -> None: ...

    app.register_roles()
    with pytest.raises(BadArguments, match=r"would be made of what is sensitive.*Hashed\(…\)") as refused:
        pay.delay({"card": CARD})
    assert CARD not in str(refused.value)
    assert rows("SELECT FROM tasks") == []


def test_keys_beside_secrets_are_as_ever(app: Celeriac, rows: Rows) -> None:
    @app.task(
        role="pay", shared=False, sensitive=("card",), fair_by="user", lock_by="{order[id]}",
        unique_by=lambda given: given["user"],
    )  # fmt: skip
    def pay(user: str, order: dict[str, Any]) -> None: ...

    app.register_roles()
    pay.delay("ann", {"id": 7, "card": CARD})
    assert rows("SELECT account, lock_key, unique_key FROM tasks") == [("ann", "7", "ann")]


@pytest.mark.parametrize(
    ("key", "text"), [("card", CARD), ("{user}:{card}", f"ann:{CARD}"), (lambda given: given["card"], CARD)]
)
def test_a_key_of_a_secret_is_its_hash(app: Celeriac, rows: Rows, key: Any, text: str) -> None:
    @app.task(role="pay", shared=False, sensitive=("card",), unique_by=Hashed(key), lock_by=Hashed(key, salt="pepper"))
    def pay(user: str, card: str) -> None: ...

    app.register_roles()
    pay.delay("ann", CARD)
    assert pay.delay("ann", CARD).id
    ((unique, lock),) = rows("SELECT unique_key, lock_key FROM tasks")
    assert len(unique) == len(lock) == 64
    assert unique != lock
    assert unique not in (hashlib.sha256(text.encode()).hexdigest(), text)
    assert rows("SELECT definition ->> 'unique_by' FROM celeriac.roles WHERE role = 'pay'") == [("<in code>",)]


def test_a_hashed_key_names_a_parameter(app: Celeriac) -> None:
    def pay(card: str) -> None: ...

    with pytest.raises(ConfigurationError, match="takes no 'cart'"):
        app.task(role="pay", shared=False, unique_by=Hashed("cart"))(pay)


#: A token of a tenant, limited to his account; and one that is limited to keys as well.
ACME = Bearer("1", "acme's", frozenset({"enqueue"}), Allowed.of(accounts=["acme"]))
ACME_KEYS = Bearer("2", "acme's", frozenset({"enqueue"}), Allowed.of(accounts=["acme"], keys=["acme:*"]))


def test_with_the_account_in_a_hashed_key_a_guess_is_answered_as_any_call_is(app: Celeriac, rows: Rows) -> None:
    """Another's key is taken, locked or free: neither a receipt nor what a task waits for tells which."""
    own = Hashed("{tenant}:{pin}", salt="pepper")

    @app.task(role="pay", shared=False, sensitive=("pin",), fair_by="tenant", unique_by=own, lock_by=own)
    def pay(tenant: str, pin: str) -> None: ...

    @app.task(role="leak", shared=False, sensitive=("pin",), fair_by="tenant", unique_by=Hashed("pin", salt="pepper"))
    def leak(tenant: str, pin: str) -> None: ...

    app.register_roles()
    for task in (pay, leak):
        task.delay("victim", "4711")
    guesses = [pay.delay("acme", pin).row_id for pin in ("4711", "0815")]
    assert len(set(guesses)) == 2
    assert rows("SELECT DISTINCT waits_for FROM worker_tasks WHERE account = 'acme'") == [(None,)]
    assert rows("SELECT count(*) FROM celeriac.tasks WHERE role = 'pay'") == [(3,)]
    shared = [leak.delay("acme", pin).row_id for pin in ("4711", "0815")]
    assert rows("SELECT account FROM celeriac.tasks WHERE id = ANY (:ids) ORDER BY 1", ids=shared) == [
        ("acme",), ("victim",),
    ], "without the account the right guess finds the victim's task: docs/tenants.md says so"  # fmt: skip


def test_a_token_that_is_limited_to_keys_enqueues_no_role_with_a_hashed_one(app: Celeriac) -> None:
    @app.task(role="leak", shared=False, sensitive=("pin",), fair_by="tenant", unique_by=Hashed("pin"))
    def leak(tenant: str, pin: str) -> None: ...

    role, signature = app.role_declared("leak")
    guess = new_task(role, signature, None, ("acme", "4711"), {}, limit=1e6)
    ACME.refuse(guess)
    with pytest.raises(TokenLimited, match="may not enqueue with the unique_key"):
        ACME_KEYS.refuse(guess)


# -- the oracle --------------------------------------------------------------------------------------------------------


@pytest.fixture
def login(app: Celeriac) -> Task[..., Any]:
    @app.task(role="login", shared=False, sensitive=("pin",))
    def login(user: str, pin: str = "", more: Any = None) -> None: ...

    app.register_roles()
    return login


IN_SQL = "SELECT (celeriac.enqueue('login', CAST(:args AS jsonb), task_id => 'mine')).is_new"


def test_an_id_tells_nobody_who_guesses_a_secret(login: Task[..., Any], rows: Rows) -> None:
    """With the right one as with a wrong one it was there; with another user it is another call."""
    first = login.using(task_id="mine").delay("ann", pin="4711", more={"pin": [1], "shop": 1})
    for pin in ("4711", "0000", {"deep": 1}):
        again = login.using(task_id="mine").delay("ann", pin=pin, more={"pin": [2], "shop": 1})
        assert again.row_id == first.row_id
        guessed = {"user": "ann", "pin": pin, "more": {"pin": pin, "shop": 1}}
        assert rows(IN_SQL, args=json.dumps(guessed)) == [(False,)]
    for other in ({"user": "bob", "more": {"shop": 1}}, {"user": "ann", "more": {"shop": 2}}):
        with pytest.raises(IdTaken):
            login.using(task_id="mine").delay(**other, pin="4711")
        with pytest.raises(DBAPIError, match="has this id, and another role or other arguments"):
            rows(IN_SQL, args=json.dumps(other | {"pin": "4711"}))
    assert rows("SELECT kwargs ->> 'pin' FROM tasks") == [("4711",)]


@pytest.mark.parametrize("names", [("pins",), ("more",)])
def test_an_id_tells_nothing_of_what_is_collected(app: Celeriac, names: tuple[str, ...]) -> None:
    @app.task(role="login", shared=False, sensitive=names)
    def login(user: str, *pins: str, flag: bool = False, **more: str) -> None: ...

    app.register_roles()
    is_of_pins = names == ("pins",)
    first = login.using(task_id="mine").delay("ann", "4711", "0815", one="1111", flag=True)
    guesses = [("ann",), ("ann", "0000"), ("ann", "4711", "0815", "1")] if is_of_pins else [("ann", "4711", "0815")]
    for args in guesses:
        for kwargs in [{"one": "1111"}] if is_of_pins else ({"one": "2222"}, {}, {"other": "1"}):
            assert login.using(task_id="mine").delay(*args, **kwargs, flag=True).row_id == first.row_id
    others: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        (("bob", "4711", "0815"), {"one": "1111", "flag": True}), (("ann", "4711", "0815"), {"one": "1111"}),
        (("ann", "4711", "0815"), {"one": "2222", "flag": True}) if is_of_pins
        else (("ann", "0815", "4711"), {"one": "1111", "flag": True}),
    ]  # fmt: skip
    for args, kwargs in others:
        with pytest.raises(IdTaken):
            login.using(task_id="mine").delay(*args, **kwargs)


def test_no_list_is_narrowed_by_what_is_collected(app: Celeriac, rows: Rows) -> None:
    """Nor does the name of a parameter behind `*pins` stand for the pin at its place."""

    @app.task(role="login", shared=False, sensitive=("pins", "more"))
    def login(user: str, *pins: str, flag: bool = False, **more: str) -> None: ...

    app.register_roles()
    login.delay("ann", "4711", "0815", code="1111")
    login.delay("ann", flag=True)
    with app.database.reading() as connection:
        for name in ("pins", "more", "code", "anything"):
            with pytest.raises(BadValue, match=f"arg.{name}: login keeps it secret"):
                insights.list_tasks(connection, insights.Filter(arguments={name: "1111"}))
        found = {
            value: len(insights.list_tasks(connection, insights.Filter(arguments={"flag": value})).items)
            for value in ("0815", True)
        }
    assert found == {"0815": 0, True: 1}


# -- chords ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["order", lambda given: given["order"]["card"]])
def test_a_chords_body_has_no_key_of_a_secret(app: Celeriac, rows: Rows, key: Any) -> None:
    @app.task(role="part", shared=False)
    def part() -> None: ...

    @app.task(role="pay", shared=False, sensitive=("card",), unique_by=key, fair_by="user")
    def pay(results: list[Any], order: dict[str, Any], user: str) -> None: ...

    app.register_roles()
    with pytest.raises(BadArguments, match="its unique_key would be made of what is sensitive"):
        chord([part.s()], pay.s({"card": CARD}, "ann"))()
    assert rows("SELECT FROM tasks") == []


@pytest.mark.usefixtures("current")
def test_what_a_chords_body_gets_of_its_members_is_hidden_in_its_errors(app: Celeriac, rows: Rows) -> None:
    @app.task(role="token", shared=False)
    def token() -> str:
        return CARD

    @app.task(role="pay", shared=False, sensitive=("cards",), fair_by="user", max_retries=0)
    def pay(cards: list[str], user: str) -> None:
        raise Permanent(f"{user} cannot pay with {cards}")

    app.register_roles()
    chord([token.s()], pay.s("ann"))()
    run_all(app)
    ((account, told),) = rows("SELECT account, error_message FROM worker_tasks WHERE role = 'pay'")
    assert account == "ann"
    assert told.startswith("Permanent: ann cannot pay with ['•••")
    assert CARD not in str(rows("SELECT CAST(h AS text) FROM celeriac.history h WHERE role = 'pay'"))


# -- editing -----------------------------------------------------------------------------------------------------------


def test_what_has_a_secret_is_edited_without_seeing_it(app: Celeriac, login: Task[..., Any], rows: Rows) -> None:
    task = login.delay("ann", "4711")
    change = app.edit(task.id, {"user": "bob"}, by="ann")
    assert change.after == {"arguments": ["user"]}
    assert rows("SELECT kwargs ->> 'user', kwargs ->> 'pin' FROM tasks") == [("bob", "4711")]
    app.edit(task.id, {"user": "cid", "pin": "•••"}, by="ann")
    assert rows("SELECT kwargs ->> 'user', kwargs ->> 'pin' FROM tasks") == [("cid", "4711")]
    app.edit(task.id, {"pin": "0815"}, by="ann")
    assert rows("SELECT kwargs ->> 'pin' FROM tasks") == [("0815",)]
    assert "0815" not in str(rows("SELECT CAST(a AS text) FROM celeriac.audit a"))
