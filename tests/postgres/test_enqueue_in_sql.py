"""`celeriac.enqueue` is `.delay()` for those who speak SQL: the same row, or both refuse."""

from __future__ import annotations

import inspect
import json
import threading
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
from celeriac.roles.keys import ONE, is_key
from celeriac.roles.registry import register
from celeriac.roles.role import IN_CODE, Role
from celeriac.roles.signature import Signature
from celeriac.store.connections import Database
from tests.postgres.stages import looked
from tests.processes import Rows

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
    def statement(self) -> Iterator[Connection]:
        yield self.connection


def test_sql_and_python_write_the_same_row_or_both_refuse(app: Celeriac) -> None:
    agreed = {"rows": 0, "refusals": 0, "cannot tell": 0}

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
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


@pytest.fixture
def sync(app: Celeriac) -> Celeriac:
    """An app that has registered the role `sync`."""

    @app.task(
        role="sync", prompt=False, shared=False, priority=4, max_rounds=2,
        fair_by="account_id", lock_by="store_id", unique_by="{store_id}:{kind}",
    )  # fmt: skip
    def sync(store_id: int, account_id: int = 1, kind: str = "full") -> None: ...

    app.register_roles()
    return app


def asked(rows: Rows, call: str) -> tuple[Any, ...]:
    ((*receipt,),) = rows(f"SELECT * FROM celeriac.enqueue({call})")
    return tuple(receipt)


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("call", "code", "says"),
    [
        ("'nonesuch'", "42704", "no role 'nonesuch'"),
        ("NULL", "42704", "no role NULL"),
        ("'sync', '{}'", "22023", "misses the argument 'store_id'"),
        ("'sync', '{\"store_id\": 1, \"colour\": 2}'", "22023", "takes no argument 'colour'"),
        ("'sync', '[1, 2, \"x\", 4]'", "22023", "takes 3 arguments by position, not 4"),
        ("'sync', '7'", "22023", "args must be an object"),
        ("'sync', NULL", "22023", "args must be an object"),
        ("'sync', '[1.5]'", "0A000", "derives no key from 1.5"),
        ("'sync', '{\"store_id\": 1, \"kind\": {}}'", "0A000", "derives no key from"),
        (f"'sync', '[1, 2, {deep(98)}]', unique_key => 'u'", None, ""),
        (f"'sync', '[1, 2, {deep(99)}]', unique_key => 'u'", "22023", "100 levels deep"),
        (
            '\'sync\', \'[1, 2, {"__type__": "date", "__value__": "x"}]\', unique_key => \'u\'',
            "22023",
            "kombu's own",
        ),
        (f"'sync', '[1, 2, {'9' * 4301}]', unique_key => 'u'", "22023", "4300 digits"),
        ("'sync', jsonb_build_array(1, 2, repeat('x', 262144))", "54000", "the limit is 262144"),
        ("'sync', '[1]', scheduled_for => 'infinity'", "22023", "scheduled_for='infinity'"),
        ("'sync', '[1]', priority => 2000000", "22023", "priority='2000000'"),
        ("'sync', '[1]', task_id => 'daily@2031-01-01T00:00:00Z'", "22023", "task_id='daily@2031"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_a_refusal_has_its_sqlstate_and_says_what_is_wrong(
    sync: Celeriac, rows: Rows, call: str, code: str | None, says: str
) -> None:
    if code is None:
        assert asked(rows, call)[2] is True
        return
    with pytest.raises(DBAPIError) as refused:
        asked(rows, call)
    assert (refused.value.orig.pgcode, says in str(refused.value)) == (code, True)
    assert rows.one("SELECT count(*) FROM worker_tasks") == 0


def test_the_limit_is_the_declaring_codes_own(sync: Celeriac, rows: Rows) -> None:
    rows("""UPDATE celeriac.roles SET definition = definition || '{"max_argument_bytes": 60}'""")
    assert asked(rows, "'sync', '{\"store_id\": 1}'")[2] is True
    with pytest.raises(DBAPIError, match="the limit is 60"):
        asked(rows, '\'sync\', \'{"store_id": 1, "kind": "0123456789"}\'')


def test_the_unfinished_task_of_the_key_is_returned(sync: Celeriac, rows: Rows) -> None:
    first = asked(rows, "'sync', '[7]'")
    assert asked(rows, "'sync', '{\"store_id\": 7}', task_id => 'mine'") == (first[0], first[1], False)
    assert asked(rows, "'sync', '[8]', task_id => 'mine'")[1:] == ("mine", True)
    assert asked(rows, "'sync', '[8]', task_id => 'mine'")[1:] == ("mine", False)


def test_an_id_is_no_other_tasks(sync: Celeriac, rows: Rows) -> None:
    asked(rows, "'sync', '[8]', task_id => 'mine'")
    assert asked(rows, "'sync', '[8]', task_id => 'mine'")[2] is False
    with pytest.raises(DBAPIError, match="has this id, and another role or other arguments") as refused:
        asked(rows, "'sync', '[9]', task_id => 'mine'")
    assert refused.value.orig.pgcode == "23505"


def test_who_logged_in_stands_behind_whatever_name_is_given(sync: Celeriac, rows: Rows) -> None:
    asked(rows, "'sync', '[8]', enqueued_by => 'somebody else'")
    assert rows.one("SELECT enqueued_by = 'somebody else sql:' || session_user FROM worker_tasks")


def test_what_cannot_run_yet_waits_for_its_time_or_its_lock(sync: Celeriac, rows: Rows) -> None:
    asked(rows, "'sync', '[7]', scheduled_for => now() + interval '1 hour'")
    asked(rows, "'sync', '[7, 1, \"prices\"]'")
    asked(rows, "'sync', '[7, 1, \"stock\"]'")
    looked(sync.database)
    assert rows("SELECT waits_for, priority, max_rounds FROM worker_tasks ORDER BY id") == [
        ("time", 4, 2), (None, 4, 2), ("lock", 4, 2),
    ]  # fmt: skip
    assert str(rows.one("SELECT min(enqueued_by) FROM worker_tasks")).startswith("sql:")


def test_a_key_in_code_is_passed_by_the_caller_from_sql_as_from_python(app: Celeriac, rows: Rows) -> None:
    @app.task(role="coded", prompt=False, shared=False, unique_by=lambda given: given["a"])
    def coded(a: int) -> None: ...

    app.register_roles()
    with pytest.raises(DBAPIError, match="Give account, lock_key or unique_key yourself"):
        asked(rows, "'coded', '[1]'")
    first = asked(rows, "'coded', '[1]', unique_key => '1'")
    assert coded.delay(1).row_id == first[0]


def test_of_many_at_once_from_sql_and_python_one_is_new_and_one_leads(sync: Celeriac, rows: Rows) -> None:
    start, new = threading.Barrier(8), []

    def one(n: int) -> None:
        start.wait()
        for store in range(20):
            if n % 2:
                new.append(sync.send_task("sync", (store,)).is_new)
            else:
                new.append(asked(rows, f"'sync', '[{store}]'")[2])
            asked(rows, f"'sync', '[{store}, 1, \"other {n}\"]'")

    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    looked(sync.database)
    assert new.count(True) == 20
    assert rows(
        "SELECT DISTINCT count(*), count(*) FILTER (WHERE waits_for IS NULL) FROM worker_tasks GROUP BY lock_key"
    ) == [(9, 1)]


def test_a_role_of_one_is_one_from_sql_and_python_alike(app: Celeriac, rows: Rows) -> None:
    @app.task(role="sweep", unique_by=ONE)
    def sweep() -> None: ...

    app.register_roles()
    first = sweep.delay()
    assert rows("SELECT task_id, is_new FROM celeriac.enqueue('sweep', '{}')") == [(first.id, False)]
