"""What `celeriac.enqueue` refuses has an SQLSTATE and says what is wrong; what it takes goes on as from Python."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac
from celeriac.roles.keys import ONE
from tests.postgres.stages import looked
from tests.processes import Rows

# Celery deprecates a task attribute of that name; the role's option is ours.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*The 'priority' task attribute")


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
