"""The line of search and the filter it means are two ways to say the same."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from celeriac.dashboard import grammar
from celeriac.dashboard.grammar import BadQuery

KNOWN = ("state", "role", "account", "lock", "error")

names = st.one_of(st.sampled_from(KNOWN), st.from_regex(r"arg\.\w{1,10}", fullmatch=True))
filters = st.dictionaries(names, st.text(min_size=1), max_size=6)


def meant(line: str) -> dict[str, str]:
    return {name: term.value for name, term in grammar.parse(line, KNOWN).items()}


def read(line: str) -> tuple[int | None, dict[str, str] | None]:
    """Where it cannot be read, or what it says."""
    try:
        return None, meant(line)
    except BadQuery as bad:
        return bad.at, None


@given(filters)
@example({"lock": 'a "b" \\ c', "role": "a:b", "error": " ", "account": '"'})
def test_what_is_written_is_read_as_it_was(told: dict[str, str]) -> None:
    assert meant(grammar.written(told)) == told


@given(st.text(st.sampled_from('ab:." \\\tstate')))
@example("state:failed  role:crawl ")
def test_any_line_is_read_or_refused_at_a_character_of_it_and_means_what_it_is_written_as(line: str) -> None:
    at, told = read(line)
    assert at is None or 0 <= at <= len(line)
    assert told is None or meant(grammar.written(told)) == told


def test_it_is_what_one_would_type() -> None:
    line = 'state:failed role:crawl account:77 arg.dispensary_id:17 error:"HTTP 502" lock:store:7'
    told = meant(line)
    assert told == {
        "state": "failed", "role": "crawl", "account": "77", "arg.dispensary_id": "17", "error": "HTTP 502",
        "lock": "store:7",
    }  # fmt: skip
    assert grammar.written(told) == line
    assert [term.at for term in grammar.parse(line, KNOWN).values()][:2] == [6, 18]


@pytest.mark.parametrize(
    ("line", "at", "says"),
    [
        ("state:failed x:1", 13, "'x' is no filter"), ("state:failed oops", 13, "name:value"), ("state:", 6, "a value"),
        (' state: role:"x"', 7, "a value"), ('lock:"a', 5, "not closed"), ('lock:"a"b', 8, "as a whole"),
        ('lock:a"b"', 6, "as a whole"), ("arg.:7", 0, "'arg.' is no filter"), ("role:a role:b", 7, "given twice"),
        (":x", 0, "name:value"), ('lock:"\\n"', 5, "backslash"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_where_it_stands(line: str, at: int, says: str) -> None:
    with pytest.raises(BadQuery, match=says) as bad:
        grammar.parse(line, KNOWN)
    assert bad.value.at == at
