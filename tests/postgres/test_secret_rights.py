"""A worker's login unveils nothing that a role calls sensitive."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac
from celeriac.insights.tasks import redaction
from celeriac.store.redact import HIDDEN
from tests.postgres.logins import Login, denied, login
from tests.processes import Rows

__all__ = ["login"]


def test_for_a_worker_login_a_role_s_secrets_only_grow(login: Login, rows: Rows, app: Celeriac) -> None:
    worker = login("worker").database
    rows("""UPDATE celeriac.roles SET definition = definition || '{"sensitive": ["pin"]}'""")
    for said in ("[]", '["card"]', "null"):
        with worker.transaction() as connection:
            emptied = f"""definition || '{{"sensitive": {said}}}'"""
            connection.exec_driver_sql(f"UPDATE celeriac.roles SET definition = {emptied}, role = role || 'x'")
    assert rows("SELECT role, definition -> 'sensitive' FROM celeriac.roles WHERE role LIKE 'sync%'") == [
        ("sync", ["card", "pin"])
    ]
    with app.database.transaction() as connection:
        connection.exec_driver_sql("""UPDATE celeriac.roles SET definition = definition || '{"sensitive": []}'""")
    assert rows.one("SELECT definition -> 'sensitive' FROM celeriac.roles WHERE role = 'sync'") == []


def test_for_a_worker_login_a_secret_place_stays_secret_whatever_the_parameters_become(
    login: Login, rows: Rows, app: Celeriac
) -> None:
    """Of calls by position. Signatures may change, and a worker starts that was not migrated before."""
    worker = login("worker").database
    rows("""UPDATE celeriac.roles SET definition = definition || '{"sensitive": ["pin"]}'""")

    def of(*names: str) -> str:
        return json.dumps([{"name": name, "kind": "POSITIONAL_ONLY"} for name in names])

    owner = "UPDATE celeriac.roles SET parameters = CAST(:said AS jsonb), definition = definition || :sensitive"
    for said, more in (
        (of("pin", "user"), ["user"]), (of("user", "note"), ["note"]), (of("user"), ["2"]), (of(), ["2"]),
        (of("user", "pin", "n"), []), (of("user", "note", "pin"), ["note"]),
    ):  # fmt: skip
        with app.database.transaction() as connection:
            sensitive = json.dumps({"sensitive": ["pin"]})
            connection.execute(text(owner.replace(":sensitive", "CAST(:sensitive AS jsonb)")),
                {"said": of("user", "pin"), "sensitive": sensitive})  # fmt: skip
        with worker.transaction() as connection:
            connection.execute(text("UPDATE celeriac.roles SET parameters = CAST(:said AS jsonb)"), {"said": said})
            secret = redaction.of_roles(connection, ["sync"])["sync"]
        assert secret.args(["ann", 4711])[1] == HIDDEN, said
        stored, names = rows("SELECT parameters, definition -> 'sensitive' FROM celeriac.roles WHERE role = 'sync'")[0]
        assert (stored, names) == (json.loads(said), sorted(["pin", *more]))
    with app.database.transaction() as connection:
        connection.execute(text("UPDATE celeriac.roles SET parameters = CAST(:said AS jsonb)"), {"said": of("pin")})


#: A handler's parameters, `*rest` and `**more` among them.
OPEN = [("user", "POSITIONAL_OR_KEYWORD"), ("rest", "VAR_POSITIONAL"), ("more", "VAR_KEYWORD")]


@pytest.mark.parametrize(
    ("parameters", "is_refused"),
    [
        (OPEN, False),
        ([("a", "POSITIONAL_ONLY"), *OPEN], False),
        ([OPEN[0], ("note", "POSITIONAL_OR_KEYWORD"), *OPEN[1:]], False),
        ([*OPEN[:2], ("token", "KEYWORD_ONLY"), OPEN[2]], False),
        ([OPEN[0], ("others", "VAR_POSITIONAL"), ("options", "VAR_KEYWORD")], False),
        ([("others", "VAR_POSITIONAL"), ("token", "KEYWORD_ONLY"), ("options", "VAR_KEYWORD")], False),
        ([OPEN[0], ("rest", "POSITIONAL_OR_KEYWORD"), OPEN[2]], True),
        ([*OPEN[:2], ("more", "KEYWORD_ONLY")], True),
        ([OPEN[0], OPEN[2]], True),
        (OPEN[:2], True),
        ([], True),
    ],
)
def test_for_a_worker_login_all_that_a_star_took_stays_secret(
    login: Login, rows: Rows, app: Celeriac, parameters: list[tuple[str, str]], is_refused: bool
) -> None:
    worker = login("worker").database
    owner = """UPDATE celeriac.roles SET parameters = CAST(:said AS jsonb),
        definition = definition || '{"sensitive": ["rest", "more"]}' WHERE role = 'sync'"""
    with app.database.transaction() as connection:
        connection.execute(text(owner), {"said": described(OPEN)})
    change = text("UPDATE celeriac.roles SET parameters = CAST(:said AS jsonb) WHERE role = 'sync'")
    if is_refused:
        with pytest.raises(DBAPIError, match="takes no longer"), worker.transaction() as connection:
            connection.execute(change, {"said": described(parameters)})
    else:
        with worker.transaction() as connection:
            connection.execute(change, {"said": described(parameters)})
    with worker.transaction() as connection:
        secret = redaction.of_roles(connection, ["sync"])["sync"]
    assert secret.args(["ann", 4711, 4712])[1:] == [HIDDEN, HIDDEN]
    assert secret.kwargs({"token": "t", "pin": 7}) == {"token": HIDDEN, "pin": HIDDEN}


def test_what_stands_beside_a_secret_star_is_as_it_was(login: Login, rows: Rows, app: Celeriac) -> None:
    """A worker registers its roles at each start."""
    parameters = described([OPEN[0], OPEN[1], ("note", "KEYWORD_ONLY"), OPEN[2]])
    with app.database.transaction() as connection:
        owner = """UPDATE celeriac.roles SET parameters = CAST(:said AS jsonb),
            definition = definition || '{"sensitive": ["rest"]}' WHERE role = 'sync'"""
        connection.execute(text(owner), {"said": parameters})
    with login("worker").database.transaction() as connection:
        again = text("UPDATE celeriac.roles SET parameters = CAST(:said AS jsonb) WHERE role = 'sync'")
        connection.execute(again, {"said": parameters})
    assert rows.one("SELECT definition -> 'sensitive' FROM celeriac.roles WHERE role = 'sync'") == ["rest"]


def described(parameters: list[tuple[str, str]]) -> str:
    return json.dumps([{"name": name, "kind": kind} for name, kind in parameters])


@pytest.mark.parametrize(
    "wrong",
    [
        "parameters = 'null'", "parameters = '{}'", "parameters = '\"x\"'", """parameters = '[null, ["pin"]]'""",
        """parameters = '[{"name": null}, {"name": ""}]'""", """parameters = '[{"name": "user"}, {"name": 7}]'""",
        "definition = '[]'", "definition = 'null'", "definition = '\"x\"'", """definition = '{"sensitive": "pin"}'""",
        """definition = '{"sensitive": {"pin": 1}}'""", """definition = '{"sensitive": [["pin"], null]}'""",
    ],
)  # fmt: skip
def test_a_worker_login_declares_no_role_of_another_shape(login: Login, rows: Rows, wrong: str) -> None:
    """In which nothing would be secret, or which no surface could read."""
    worker = login("worker").database
    for sensitive in ('["pin"]', "[]", "null"):
        rows(f"""UPDATE celeriac.roles SET definition = definition || '{{"sensitive": {sensitive}}}'""")
        before = rows("SELECT * FROM celeriac.roles")
        assert denied(worker, f"UPDATE celeriac.roles SET {wrong}") == "22023"
        assert rows("SELECT * FROM celeriac.roles") == before
