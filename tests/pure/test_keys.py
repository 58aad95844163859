"""What a call's arguments come to: the keys of its task, by name, or an error that says what would fit."""

from __future__ import annotations

import inspect
import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from celeriac.errors import BadArguments, ConfigurationError
from celeriac.roles.keys import ONE, key_of, lock_of
from celeriac.roles.options import refuse_unknown_parameters
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature
from tests.pure.test_roles import INFINITE, NAN, role

ARGUMENTS = {"platform": "weedmaps", "store_id": 7, "nothing": None, "whole": {"id": 3}}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, None),
        ("store_id", "7"),
        ("nothing", None),
        ("{platform}:{store_id}", "weedmaps:7"),
        ("{store_id:03}", "007"),
        ("{whole[id]}", "3"),
        (lambda arguments: arguments["store_id"] * 2, "14"),
        (lambda _: None, None),
    ],
)
def test_a_key_is_a_parameter_a_format_of_several_a_function_or_none(key: Any, text: str | None) -> None:
    assert key_of(key, ARGUMENTS, "build") == text


@pytest.mark.parametrize("key", ["absent", "{absent}", "{platform.absent}", "{store_id[0]}", "{platform:d}"])
def test_arguments_that_give_no_key_are_refused_not_crashed_on(key: str) -> None:
    with pytest.raises(BadArguments, match="build: the arguments give no key"):
        key_of(key, ARGUMENTS, "build")


def test_a_bare_parameters_lock_carries_its_name_as_locks_hold_across_roles() -> None:
    assert lock_of("store_id", ARGUMENTS, "build") == "store_id:7"
    assert lock_of("store_id", ARGUMENTS, "publish") == "store_id:7"


@pytest.mark.parametrize(("key", "text"), [("{platform}/{store_id}", "weedmaps/7"), (lambda _: "all", "all")])
def test_a_lock_made_by_hand_is_taken_as_it_is(key: Any, text: str) -> None:
    assert lock_of(key, ARGUMENTS, "build") == text


def test_one_is_the_same_key_whatever_the_arguments() -> None:
    assert key_of(ONE, ARGUMENTS, "build") == key_of(ONE, {}, "build") == "{one}"


@pytest.mark.parametrize("key", [None, "nothing", lambda _: None])
def test_no_value_is_no_lock(key: Any) -> None:
    assert lock_of(key, ARGUMENTS, "build") is None


def keyed(account_id: int, x: int) -> None: ...


@pytest.mark.parametrize("option", ["fair_by", "lock_by", "unique_by"])
@pytest.mark.parametrize("key", ["acount_id", "{acount_id}:{x}", "{x:{acount_id}}"])
def test_a_key_of_a_parameter_the_handler_does_not_take_suggests_the_right_one(option: str, key: str) -> None:
    signature = Signature.of(keyed, role="build")
    with pytest.raises(ConfigurationError, match=rf"'build': {option}=.*'acount_id'; did you mean 'account_id'\?$"):
        refuse_unknown_parameters(role(**{option: key}), signature)


def test_keys_of_the_handlers_parameters_and_functions_pass() -> None:
    signature = Signature.of(keyed, role="build")
    given = {"fair_by": "account_id", "lock_by": "{account_id}:{x}", "unique_by": lambda _: "y"}
    assert refused_key(role(**given), signature) is None
    assert refused_key(role(unique_by=ONE), signature) is None
    assert "x2" in str(refused_key(role(**given | {"lock_by": "{x2}"}), signature))


def refused_key(of: Role, signature: Signature) -> ConfigurationError | None:
    try:
        refuse_unknown_parameters(of, signature)
    except ConfigurationError as error:
        return error
    return None


# -- signatures --------------------------------------------------------------------------------------------------------


def handler(site: int, /, account: str, *rest: int, size: float = 1.5, flag: bool = False, **more: object) -> None: ...


def test_binding_names_all_arguments_with_their_defaults() -> None:
    bound = Signature.of(handler, role="build").bind((1, "a", 2, 3), {"flag": True, "x": 9})
    assert bound == {"site": 1, "account": "a", "rest": (2, 3), "size": 1.5, "flag": True, "more": {"x": 9}}


def plain(site: int, account: str = "none", *, size: float = 1.5) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"site": 2}), ((1,), {"sizes": 2}), ((), {"account": "a"})],
)
def test_arguments_that_do_not_fit_are_refused_with_the_role_and_its_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(BadArguments, match=r"build\(site: 'int', account: 'str' = 'none'.*nothing was enqueued"):
        Signature.of(plain, role="build").bind(args, kwargs)


def test_bad_arguments_are_a_type_error_as_celerys_callers_expect() -> None:
    with pytest.raises(TypeError):
        Signature.of(plain, role="build").bind((), {})


@pytest.mark.parametrize(
    ("function", "nameable"),
    [(plain, True), (handler, False), (lambda a, /: a, False), (lambda *a: a, False), (lambda **a: a, True)],
)
def test_arguments_can_be_stored_by_name_unless_some_are_positional_only(function: Any, nameable: bool) -> None:
    assert Signature.of(function, role="build").nameable is nameable


Param = inspect.Parameter
KINDS = st.sampled_from(
    [Param.POSITIONAL_ONLY, Param.POSITIONAL_OR_KEYWORD, Param.VAR_POSITIONAL, Param.KEYWORD_ONLY, Param.VAR_KEYWORD]
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab")


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    kinds = sorted(draw(st.lists(KINDS, max_size=5)))
    parameters = []
    for place, kind in enumerate(kinds):
        variable = kind in (Param.VAR_POSITIONAL, Param.VAR_KEYWORD)
        default = Param.empty if variable or draw(st.booleans()) else draw(PLAIN)
        parameters.append(Param(f"p{place}", kind, default=default))
    try:
        return Signature(parameters, role="build")
    except ValueError:  # two *args, or a default before none
        assume(False)
        raise


@given(
    signatures(), st.lists(st.integers(), max_size=4), st.dictionaries(st.sampled_from(["p0", "p1", "p3", "x"]), PLAIN)
)
def test_a_described_signature_binds_as_the_handlers_own(
    signature: Signature, args: list[Any], kwargs: dict[str, Any]
) -> None:
    told = json.loads(json.dumps(signature.describe(), allow_nan=False))
    again = Signature.from_description(told, role="build")
    assert again.names == signature.names
    assert again.nameable == signature.nameable
    try:
        bound = signature.bind(tuple(args), kwargs)
    except BadArguments:
        with pytest.raises(BadArguments):
            again.bind(tuple(args), kwargs)
    else:
        assert again.bind(tuple(args), kwargs) == bound


@pytest.mark.parametrize("default", [NAN, INFINITE, -INFINITE, "a\x00b", "\ud83d", UUID(int=1), object(), [1], {}])
def test_a_default_postgres_json_cannot_hold_is_told_as_null_and_still_is_a_default(default: Any) -> None:
    def optional(x: Any = default) -> None: ...

    assert Signature.of(optional, role="build").describe() == [
        {"name": "x", "kind": "POSITIONAL_OR_KEYWORD", "default": None}
    ]


@pytest.mark.parametrize(
    "key", ["of", "{of}", "{of!r}", lambda arguments: arguments["of"], lambda a: json.dumps(a["of"])]
)
def test_a_key_does_not_depend_on_the_order_of_a_mapping(key: Any) -> None:
    one = {"b": [{"y": 1, "x": 2}], "a": {"d": None, "c": (1, {"f": 0, "e": 0})}}
    other = {"a": {"c": (1, {"e": 0, "f": 0}), "d": None}, "b": [{"x": 2, "y": 1}]}
    assert key_of(key, {"of": one}, "build") == key_of(key, {"of": other}, "build")
    assert lock_of(key, {"of": one}, "build") == lock_of(key, {"of": other}, "build")
    assert key_of("of", {"of": [2, 1]}, "build") != key_of("of", {"of": [1, 2]}, "build"), "a list has an order"
    assert key_of("of", {"of": {"a": 1, "b": "2"}}, "build") == "{'a': 1, 'b': '2'}", "as before, where it was sorted"
