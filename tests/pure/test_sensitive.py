"""Sensitive arguments: found by their names wherever they stand, and their values in whatever text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac import Celeriac
from celeriac.errors import BadValue, ConfigurationError
from celeriac.insights.tasks.redaction import redacted
from celeriac.roles.options import secrets_in
from celeriac.roles.signature import Signature
from celeriac.run import journal
from celeriac.settle.outcome import masked
from celeriac.store.redact import HIDDEN, without
from celeriac.store.sensitive import Sensitive, kept, of, without_masks
from celeriac.store.spellings import SHORTEST

SECRET = Sensitive(frozenset({"password", "pin"}), ("user", "password", "card"))

TEXTS = st.text(min_size=SHORTEST, max_size=20).filter(lambda text: len(text.strip()) >= SHORTEST)


def quoted(value: str, ways: list[Any]) -> str:
    """Without the outermost quotes, if there are any."""
    for way in ways:
        value = way(value)
    return value[1:-1] if ways else value


def test_what_is_called_so_is_hidden_by_place_by_name_and_within() -> None:
    card = {"pin": 4711, "name": "Ann", "old": [{"pin": None}, {"pin": "0815"}]}
    shown = {"pin": HIDDEN, "name": "Ann", "old": [{"pin": None}, {"pin": HIDDEN}]}
    assert SECRET.args(["ann", "xyz", card, "more"]) == ["ann", HIDDEN, shown, "more"]
    assert SECRET.call([], {"user": "ann", "password": ["a", "b"], "card": card}) == (
        [], {"user": "ann", "password": HIDDEN, "card": shown},
    )  # fmt: skip
    assert SECRET.within([card, "text", None]) == [shown, "text", None]


@given(secret=TEXTS, before=st.text(), ways=st.lists(st.sampled_from([repr, json.dumps, ascii]), max_size=3))
def test_a_value_is_found_however_it_is_quoted(secret: str, before: str, ways: list[Any]) -> None:
    values = SECRET.values([], {"card": {"pin": [secret]}})
    told = quoted(f"the pin {secret}!", ways)
    assert quoted(secret, ways) not in without(values, told) or secret in HIDDEN
    assert HIDDEN in without(values, told)
    assert without(values, {"said": [told, 7]})["said"][1] == 7
    assert without(SECRET.values([], {}), before) == before


def test_what_is_too_short_to_be_a_secret_stays_in_texts() -> None:
    values = SECRET.values(["ann", "abc", None], {"pin": True})
    assert without(values, "abc True ann") == "abc True ann"
    assert without(SECRET.values(["ann", 471_100], {}), "code 471100") == "code •••"


def test_keys_are_secrets_as_well_where_they_are_more_than_words() -> None:
    values = SECRET.values(
        [], {"pin": {"tok_live_abcdef": 1, "tok-7": [{"correct-horse-battery-staple": True}], "name": 1}}
    )
    told = "KeyError: 'tok_live_abcdef', 'tok-7', 'correct-horse-battery-staple', 'name'"
    assert without(values, told) == "KeyError: '•••', '•••', '•••', 'name'"


def spread(user: str, *pins: str, flag: bool = False, **extra: str) -> None: ...


@pytest.mark.parametrize("names", [("pins",), ("extra",), ("pins", "extra"), ("user",)])
def test_what_collects_arguments_is_all_of_them(names: tuple[str, ...]) -> None:
    """By place from `*pins` on; by name what is no other parameter."""
    secret = of(names, Signature.of(spread, role="spread").kinds)
    assert secret is not None
    args, kwargs = ["ann", "pin-1111", "pin-2222"], {"flag": True, "one": "extra-11", "two": {"deep": "extra-22"}}
    shown = secret.call(args, kwargs)
    pins = [HIDDEN, HIDDEN] if "pins" in names else args[1:]
    extra = {"one": HIDDEN, "two": HIDDEN} if "extra" in names else {"one": "extra-11", "two": {"deep": "extra-22"}}
    assert shown == ([HIDDEN if "user" in names else "ann", *pins], {"flag": True, **extra})
    told = secret.values(args, kwargs).without("pin-1111 a pin-2222 b extra-11 c extra-22 d True").split()[::2]
    assert told == [
        *(["•••"] * 2 if "pins" in names else ["pin-1111", "pin-2222"]),
        *(["•••"] * 2 if "extra" in names else ["extra-11", "extra-22"]), "True",
    ]  # fmt: skip


@pytest.mark.parametrize(("names", "joins"), [(("results",), True), (("results",), "results"), (("pin",), True)])
def test_a_chords_body_hides_its_result_where_what_it_joins_is_sensitive(names: tuple[str, ...], joins: Any) -> None:
    """Its members' results are no part of its row."""
    secret = of(names, [("results", "POSITIONAL_OR_KEYWORD"), ("pin", "POSITIONAL_OR_KEYWORD")])
    headers = {"canvas": {"awaits": "x", "joins": joins}}
    task = {"args": [None, "4711"], "kwargs": {}, "headers": headers, "result": "member's", "progress": None}
    shown = redacted(task, secret)
    assert (shown["result"], shown["progress"]) == (HIDDEN if names == ("results",) else "member's", None)


def test_what_is_sent_back_as_it_was_shown_stays() -> None:
    was = {"user": "ann", "password": "xyz", "card": {"pin": 1, "old": [{"pin": 2}]}}
    sent = {"user": "bob", "password": HIDDEN, "card": {"pin": HIDDEN, "old": [{"pin": HIDDEN}]}, "new": ["a"]}
    assert kept(sent, was) == was | {"user": "bob", "new": ["a"]}
    assert kept({"password": "new"}, was) == {"password": "new"}


@pytest.mark.parametrize(
    ("sent", "where"),
    [
        ({"new": HIDDEN}, "new"), ({"user": {"pin": HIDDEN}}, "user.pin"),
        ({"card": {"old": [{"pin": HIDDEN}, {"pin": 3}]}}, "card.old[0].pin"), ({"card": [HIDDEN]}, "card[0]"),
        ({"card": {"pin": 1, "more": {"pin": HIDDEN}}}, "card.more.pin"),
    ],
)  # fmt: skip
def test_what_stands_for_a_hidden_value_never_becomes_one(sent: dict[str, Any], where: str) -> None:
    """As in a list that has got longer, or under a name that was not there."""
    was = {"user": "ann", "card": {"pin": 1, "old": [{"pin": 2}]}}
    with pytest.raises(BadValue, match=f"^{re.escape(where)}: "):
        kept(sent, was)


def test_a_role_without_secrets_costs_nothing() -> None:
    assert of(()) is None
    assert of(None, [("password", "POSITIONAL_OR_KEYWORD")]) is None


def test_names_of_secrets_are_known() -> None:
    names = [
        "password",
        "db_password",
        "PASSWD",
        "secret",
        "client_secret",
        "api_key",
        "apikey",
        "access_token",
        "token",
    ]
    assert secrets_in([*names, "user", "max_tokens", "token_count", "key", "secretary", "store_id"]) == names


def test_a_key_is_not_made_of_what_nobody_sees() -> None:
    app = Celeriac("sensitive", set_as_current=False)
    with pytest.raises(ConfigurationError, match="may not be made of 'token', which is sensitive"):

        @app.task(shared=False, role="reset", unique_by="{user}/{token}", sensitive=("token",))
        def reset(user: str, token: str) -> None: ...


@pytest.mark.parametrize(
    "masks", [{}, {"argsrepr": "('ann', 'hunter2222', (1, 2))"}, {"kwargsrepr": "{'password': 'hunter2222'}"}]
)
@pytest.mark.parametrize(("args", "kwargs"), [(["ann", "hunter2222", [1, 2]], {}), ([], {"password": "hunter2222"})])
def test_what_a_sender_says_of_a_call_tells_no_secret(masks: dict[str, str], args: Any, kwargs: Any) -> None:
    """Stock Celery describes a tuple, which arrives as a list, with all that is in it."""
    shown = journal.arguments(args, kwargs, masks or None, SECRET)
    task = {"args": args, "kwargs": kwargs, "headers": masks or None}
    assert "hunter" not in repr([shown, redacted(task, SECRET)])
    assert HIDDEN in repr(shown)
    assert masked(without_masks(masks or None)) == bool(masks)
