"""What whoever may not see calls gets: texts of fields that are listed, without what errors say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from celeriac.insights.tasks.veil import CALLS, ERROR_TEXTS, SHOWN, veiled
from celeriac.store.messages import MOST, quoted
from tests.api.described import document

HIDDEN = "•••"


@dataclass(frozen=True)
class Row:
    role: str
    unheard: str
    error: str
    n: int


class Pair(NamedTuple):
    account: str
    unheard: str


def test_a_text_is_shown_where_its_field_is_listed_and_nowhere_else() -> None:
    assert veiled({"role": "crawl", "unheard": "s3cret", "n": 7, "is": True, "at": None}) == {
        "role": "crawl", "unheard": HIDDEN, "n": 7, "is": True, "at": None,
    }  # fmt: skip
    assert veiled([Row("crawl", "s3cret", "KeyError: s3cret", 7)]) == [Row("crawl", HIDDEN, f"KeyError: {HIDDEN}", 7)]
    assert veiled(Pair("acme", "s3cret")) == Pair("acme", HIDDEN)
    assert veiled({"unheard": ["s3cret", {"deep": "s3cret"}], "message": b"s3cret", "error": ["s3cret", 7]}) == {
        "unheard": [HIDDEN, {"deep": HIDDEN}], "message": HIDDEN, "error": [HIDDEN, HIDDEN],
    }  # fmt: skip
    assert veiled({"args": {"card": 4711}, "kwargs": [4711], "result": 4711, "headers": {"x": {"y": 1}}}) == {
        "args": {"card": HIDDEN}, "kwargs": [HIDDEN], "result": HIDDEN, "headers": {"x": HIDDEN},
    }  # fmt: skip


def test_below_a_listed_field_a_text_is_shown_where_its_own_field_is_listed() -> None:
    rows = [{"role": "a", "last_words": "s3cret"}]
    assert veiled({"roles": rows, "task": {"id": 1, "summary": "s3cret"}, "notes": {"of": {"unheard": "s3cret"}}}) == {
        "roles": [{"role": "a", "last_words": HIDDEN}], "task": {"id": 1, "summary": HIDDEN},
        "notes": {"of": {"unheard": HIDDEN}},
    }  # fmt: skip
    assert veiled({"facts": {"asked for": "acme", "error": "KeyError: s3cret"}}) == {
        "facts": {"asked for": "acme", "error": f"KeyError: {HIDDEN}"}
    }
    assert veiled({"unheard": {"s3cret"}, "role": frozenset({"crawl"})}) == {"unheard": [HIDDEN], "role": ["crawl"]}


def test_what_people_write_themselves_is_as_they_wrote_it() -> None:
    own = {"description": "Sends «Nightly» mails", "name": "«Nightly»", "account": "«acme»"}
    assert veiled(own) == own


def test_rows_from_before_quotes_were_marked_are_shown_by_the_kind_of_their_error() -> None:
    assert veiled({"name": "nightly", "quarantined": "KeyError: s3cret"})["quarantined"] == f"KeyError: {HIDDEN}"
    assert veiled({"why": "it cannot run: crawl: n='s3cret'"}) == {"why": f"it cannot run: crawl: {HIDDEN}"}
    assert veiled({"why": f"it cannot run: {quoted('KeyError: s3cret')}"}) == {
        "why": f"it cannot run: «KeyError: {HIDDEN}»"
    }
    for alert in ("fails_now", "account_fails"):
        assert veiled({"name": alert, "says": "2 failed: s3cret"}) == {"name": alert, "says": HIDDEN}
        marked_one = {"name": alert, "says": f"2 failed: {quoted('s3cret')}; 2 tasks"}
        assert veiled(marked_one)["says"] == f"2 failed: «{HIDDEN}»; 2 tasks"
    others = {"name": "flood", "says": "9 tasks wait", "quarantined": None, "why": "the last was not over"}
    assert veiled(others) == others


def test_what_selected_many_tasks_is_hidden_in_rows_from_before_targets_named_conditions_alone() -> None:
    def of(target: str, kind: str = "tasks") -> Any:
        return veiled({"kind": kind, "target": target, "after": {"filter": {"error": "s3cret"}}})["target"]

    assert of("statuses=['failed'], error=s3cret, account=a") == f"statuses={HIDDEN}"
    assert of("error=s3cret") == f"error={HIDDEN}"
    assert of("statuses, error, arg.email") == "statuses, error, arg.email"
    assert of("a=b", "account") == "a=b"


def test_of_a_sentence_what_an_error_says_is_hidden() -> None:
    sentence = f"2 failed: {quoted('KeyError: s3cret «of» ann')}; {quoted('s3cret')}, 2 tasks"
    assert veiled({"says": sentence}) == {"says": f"2 failed: «KeyError: {HIDDEN}»; «{HIDDEN}», 2 tasks"}
    assert quoted("«x»" * MOST).count("«") == 1


def texts(schema: Any, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Names of the fields of an answer that may have a text."""
    if isinstance(schema, dict):
        name = schema.get("$ref", "").rpartition("/")[2]
        if name and name not in above:
            yield from texts(document()["components"]["schemas"][name], (*above, name))
        yield from (key for key, part in schema.get("properties", {}).items() if may_be_text(part))
        for key, part in schema.items():
            if key not in ("example", "examples"):
                yield from texts(part, above)
    elif isinstance(schema, list):
        for part in schema:
            yield from texts(part, above)


def may_be_text(schema: dict[str, Any]) -> bool:
    inner = [*schema.get("anyOf", ()), schema.get("items", {}), schema.get("additionalProperties", {})]
    is_instant = schema.get("format") in ("date", "date-time")
    return (schema.get("type") == "string" and not is_instant) or any(
        may_be_text(one) for one in inner if isinstance(one, dict) and one
    )


def test_of_each_text_in_the_apis_answers_it_is_said_whether_it_is_shown() -> None:
    answers = [methods["get"]["responses"]["200"] for methods in document()["paths"].values() if "get" in methods]
    names = {name for one in answers for name in texts(one)}
    assert names - SHOWN - CALLS - ERROR_TEXTS == set()
    assert not SHOWN & (CALLS | ERROR_TEXTS)
