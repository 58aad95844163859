"""An application's own rules: they fire as the engine's do, and a bad one stops no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from celeriac import Celeriac
from celeriac.alerts import Rule, measure, review
from celeriac.cli.check import problems
from celeriac.errors import ConfigurationError
from celeriac.repair import sweep
from tests.postgres.alerts import FIRES, LETTER
from tests.processes import Rows


@contextmanager
def module_of(*rules: Any) -> Iterator[str]:
    module = ModuleType("rules_of_a_test")
    module.rules = rules  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    yield f"{module.__name__}:rules"
    del sys.modules[module.__name__]


def of_tables(connection: Any) -> dict[str, float]:
    return {"things": connection.execute(text("SELECT count(*) FROM things")).scalar_one()}


MINE = Rule(name="too_many", of="a table", measure=of_tables, threshold=1, says="{value:.0f}, more than {threshold:g}")


def test_an_application_has_rules_of_its_own(app: Celeriac, rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    """One that cannot be read stops no other, and leaves its alerts as they were."""
    rows("CREATE TABLE things AS SELECT generate_series(1, 2)")
    rows(LETTER)
    with module_of(MINE) as app.alerts:
        assert sweep(app, "alerts") == 2
        rows("ALTER TABLE things RENAME TO others")
        rows("DELETE FROM dead_letters")
        assert sweep(app, "alerts") == 1
        assert rows("SELECT name, subject, says FROM alerts") == [("too_many", "things", "2, more than 1")]
        assert "could not be read" in caplog.text
        rows("ALTER TABLE others RENAME TO things")
        rows("DELETE FROM things")
        assert sweep(app, "alerts") == 1


def test_one_that_takes_too_long_keeps_no_other_waiting(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def sleeps(connection: Any) -> dict[str, float]:
        connection.execute(text("SELECT pg_sleep(20)"))
        return {"things": 2}

    monkeypatch.setattr(measure, "PATIENCE_MS", 100)
    rows(LETTER)
    with module_of(replace(MINE, measure=sleeps)) as app.alerts:
        assert sweep(app, "alerts") == 1
    assert rows(FIRES) == [("dead_letters", "plain Celery")]
    assert "could not be read" in caplog.text


def raises_of_another_database(connection: Any) -> dict[str, float]:
    with create_engine("postgresql+psycopg2://127.0.0.1:1/none").connect():
        return {}


BAD: dict[str, Rule] = {
    "no value": replace(MINE, measure=lambda _: {"things": None}),
    "no number": replace(MINE, measure=lambda _: {"things": float("nan")}),
    "a subject too long": replace(MINE, measure=lambda _: {"x" * 9_000: 2}),
    "a zero byte": replace(MINE, measure=lambda _: {"\0": 2}),
    "a sentence that does not format": replace(MINE, measure=lambda _: {"things": 2}, says="{nothing}"),
    "another database is away": replace(MINE, measure=raises_of_another_database),
    "an unknown severity": replace(MINE, measure=lambda _: {"things": 2}, severity="bad"),  # type: ignore[arg-type]
    "an unknown threshold": replace(MINE, measure=lambda _: {"things": 2}, threshold="unknown"),
    "for ever": replace(MINE, measure=lambda _: {"things": 2}, lasts=float("inf")),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_rule_of_an_application_ends_no_other(
    app: Celeriac, rows: Rows, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    rows(LETTER)
    with module_of(BAD[bad]) as app.alerts:
        assert sweep(app, "alerts") == 1
    assert rows(FIRES) == [("dead_letters", "plain Celery")]
    told = [record for record in caplog.records if record.exc_info or record.name == "celeriac.alerts.measure"]
    assert told, "with its place, or in a line where a database is away"


def test_rules_that_cannot_be_imported_end_no_other(app: Celeriac, rows: Rows) -> None:
    rows(LETTER)
    app.alerts = "no_such_module:RULES"
    assert sweep(app, "alerts") == 1
    rows("UPDATE repairs SET at = at - interval '61 s'")
    rows("DELETE FROM dead_letters")
    assert review.review_if_late(app) == 1


def test_a_measure_may_tell_decimals(app: Celeriac, rows: Rows) -> None:
    with module_of(replace(MINE, measure=lambda _: {"things": Decimal(2)})) as app.alerts:
        assert sweep(app, "alerts") == 1


def test_another_application_leaves_its_alerts_alone_for_a_day(app: Celeriac, rows: Rows) -> None:
    rows("INSERT INTO alerts (name, subject, value, threshold) VALUES ('too_many', 'things', 2, 1)")
    assert sweep(app, "alerts") == 0
    rows("UPDATE alerts SET last_seen_at = last_seen_at - interval '25 hours'")
    assert sweep(app, "alerts") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "beat_silent",
        Rule(name="beat_silent", of="beat", measure=of_tables, threshold=1, says=""),
        Rule(name="mine", of="beat", measure="queued", threshold=1, says=""),
        Rule(name="mine", of="beat", measure=of_tables, threshold="nothing", says=""),
    ],
)
def test_what_is_no_rule_of_an_application_is_refused(app: Celeriac, wrong: Any) -> None:
    told = "alerts='rules_of_a_test:rules': "
    with module_of(wrong) as app.alerts:
        with pytest.raises(ConfigurationError, match=told):
            review.rules_of(app)
        assert [problem for problem in problems(app) if told in problem]
