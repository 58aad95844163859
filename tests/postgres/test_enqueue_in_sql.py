"""`celeriac.enqueue` is `.delay()` for those who speak SQL: the same row, or both refuse."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac
from celeriac.errors import EnqueueRefused
from celeriac.roles.keys import is_key
from celeriac.roles.registry import register
from celeriac.roles.role import IN_CODE, Role
from celeriac.roles.signature import Signature
from celeriac.store.connections import Database
from tests.examples import of_a_hundred

# Celery deprecates a task attribute of that name; the role's option is ours.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*The 'priority' task attribute")

CONTENT = """
SELECT role, account, lock_key, unique_key, status, waits_for, priority, kwargs, args, headers, max_retries, max_rounds,
    timeout, parent_id, scheduled_for > now() + interval '1 minute' AS later, expires_at
FROM worker_tasks"""

CANNOT_TELL, WRONG = "0A000", "22023"

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

plain = st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.text(max_size=6))
numbers = st.floats(allow_nan=False, allow_infinity=False).filter(lambda f: not f.is_integer())
values = st.one_of(plain, numbers, st.lists(plain, max_size=2), st.dictionaries(st.text(max_size=3), plain, max_size=2))


def storable(value: Any) -> bool:
    """Postgres' JSON holds no NUL and no half of a surrogate pair; the driver refuses them before any function does."""
    written = json.dumps(value)
    return "\\u0000" not in written and "\\ud" not in written.lower()


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    kinds = draw(st.lists(st.sampled_from(list(inspect._ParameterKind)), max_size=4).map(sorted))
    parameters, defaulted = [], False
    for name, kind in zip("abcd", kinds, strict=False):
        if kind.name.startswith("VAR_"):
            if any(p.kind == kind for p in parameters):
                continue
            parameters.append(inspect.Parameter(name, kind))
            continue
        defaulted = draw(st.booleans()) or (defaulted and kind in POSITIONAL)
        default = draw(values.filter(storable)) if defaulted else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, kind, default=default))
    return Signature(parameters, role="work")


def keys_of(signature: Signature) -> st.SearchStrategy[str | None]:
    if not signature.names:
        return st.none()
    names = st.sampled_from(signature.names)
    parts = st.one_of(names.map("{{{}}}".format), st.sampled_from(["{{", "}}", ":", "x"]))
    formats = st.tuples(names.map("{{{}}}".format), st.lists(parts, max_size=3)).map(lambda t: "".join([t[0], *t[1]]))
    odd = names.map(lambda n: f"{{{n}!r}}") | names.map(lambda n: f"{{{n}:>4}}") | names.map(lambda n: f"{{{n}.real}}")
    return st.one_of(st.none(), names, formats, odd, st.just(IN_CODE)).filter(
        lambda k: k in (None, IN_CODE) or is_key(k)
    )


arguments = st.one_of(
    st.lists(values.filter(storable), max_size=4),
    st.dictionaries(st.sampled_from("abcd"), values.filter(storable), max_size=4),
)

calls = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.sampled_from([-1_000_001, -5, 0, 70, 1_000_000, 1_000_001]),
        "account": st.sampled_from(["", "acme", "é" * 501]),
        "lock_key": st.sampled_from(["", "site:1", "x" * 1001]),
        "unique_key": st.sampled_from(["", "once"]),
        "task_id": st.sampled_from(["mine", "é" * 501]),
        "timeout": st.sampled_from([0.0, -1.0, 2.5, 100 * 365 * 86_400.0, 1e300, float("inf"), float("nan")]),
        "max_retries": st.sampled_from([-1, 0, 7, 1_000_001]),
        "scheduled_for": st.sampled_from(["2020-01-01T00:00:00+00:00", "2900-01-01T00:00:00+02:00"]),
        "expires_at": st.sampled_from(["2950-06-01T00:00:00+00:00"]),
    },
)


@contextmanager
def undone(connection: Connection) -> Iterator[None]:
    savepoint = connection.begin_nested()
    try:
        yield
    finally:
        savepoint.rollback()


def by_sql(connection: Connection, role: str, args: Any, call: dict[str, Any]) -> dict[str, Any]:
    named = "".join(f", {name} => CAST(:{name} AS {TYPES[name]})" for name in call)
    asked = text(f"SELECT * FROM celeriac.enqueue(:role, CAST(:args AS jsonb){named})")
    return dict(connection.execute(asked, {"role": role, "args": json.dumps(args)} | call).mappings().one())


TYPES = dict.fromkeys(["account", "lock_key", "unique_key", "task_id", "enqueued_by"], "text") | {
    "priority": "integer",
    "max_retries": "integer",
    "timeout": "double precision",
    "scheduled_for": "timestamptz",
    "expires_at": "timestamptz",
}


def row_by_python(app: Celeriac, connection: Connection, args: Any, call: dict[str, Any]) -> Any:
    options = {{"scheduled_for": "eta", "expires_at": "expires"}.get(name, name): value for name, value in call.items()}
    given = (args, None) if isinstance(args, list) else (None, args)
    with undone(connection):
        app.by_name._known.clear()
        try:
            app.send_task("work", *given, connection=connection, **options)
        except EnqueueRefused:
            return None
        return connection.execute(text(CONTENT)).one()


def row_by_sql(connection: Connection, args: Any, call: dict[str, Any]) -> Any:
    """The row, or the SQLSTATE of the refusal."""
    with undone(connection):
        try:
            by_sql(connection, "work", args, call)
        except DBAPIError as error:
            return getattr(error.orig, "pgcode", None)
        return connection.execute(text(CONTENT)).one()


class OneTransaction(Database):
    """Reads the role where the test has written it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @contextmanager
    def statement(self, **_: Any) -> Iterator[Connection]:
        yield self.connection


def test_sql_and_python_write_the_same_row_or_both_refuse(app: Celeriac) -> None:
    agreed = {"rows": 0, "refusals": 0, "cannot tell": 0}

    @settings(max_examples=of_a_hundred(200), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        signature = data.draw(signatures())
        rule = {name: data.draw(keys_of(signature)) for name in ("fair_by", "lock_by", "unique_by")}
        limits: dict[str, Any] = {
            "max_retries": data.draw(st.sampled_from([None, 0, 3])),
            "priority": data.draw(st.integers(-5, 5)),
        }
        limits["priority_range"] = data.draw(st.sampled_from([(-1_000_000, 1_000_000), (-5, 70)]))
        definition = Role(name="work", **limits).definition() | rule
        args, call = data.draw(arguments), data.draw(calls)
        with app.database.engine.connect() as connection:
            register(connection, [{"role": "work", "definition": definition, "parameters": signature.describe()}], 0)
            app.by_name.database = OneTransaction(connection)
            python, sql = row_by_python(app, connection, args, call), row_by_sql(connection, args, call)
            connection.rollback()
        if sql == CANNOT_TELL:
            assert not all(
                key is None or (key in signature.names and is_told(key, signature, args)) for key in rule.values()
            )
            agreed["cannot tell"] += 1
        elif isinstance(sql, str):
            assert sql == WRONG
            assert python is None
            agreed["refusals"] += 1
        else:
            assert python == sql
            agreed["rows"] += 1

    compare()
    assert min(agreed.values()) > 10, agreed


def is_told(key: str, signature: Signature, args: Any) -> bool:
    """A bare key whose argument is text, a whole number, a truth value or nothing must never be refused."""
    try:
        bound = signature.bind(tuple(args), {}) if isinstance(args, list) else signature.bind((), args)
    except EnqueueRefused:
        return False
    return bound[key] is None or isinstance(bound[key], str | int)
