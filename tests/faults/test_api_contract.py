"""schemathesis against the API's own document: no 5xx, no answer the document does not allow, nothing accepted that it
forbids and nothing refused that it allows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, CheckFunction, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    ignored_auth,
    missing_required_header,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.api.server import Api, serving
from tests.conftest import Servers

#: All that are of a single call; the others (use_after_free and the like) want a sequence.
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance, positive_data_acceptance, negative_data_rejection, missing_required_header,
    unsupported_method, allow_header_conformance, ignored_auth,
]  # fmt: skip

#: Refusals (422) of what the document allows: words of the answer, and why no schema can say it.
BEYOND_A_SCHEMA = {
    r"^no role ": "roles are what workers have declared",
    r"^give a role; left out, one role has to take just these arguments": "so is what their handlers take",
    r"^\w+\(.*\): (missing a required argument|too many positional|got an unexpected|multiple values)": "the same",
    r"^\w+: its queue(s are| is) .*, set where the role is declared": "queues are what the role lists",
    r"is not present in table": "what exists is what the database has",
    r"give `offset` or `after`, not both": "OpenAPI describes each query parameter by itself",
    r"give kind and target together, or neither": "OpenAPI describes each query parameter by itself",
    r"after=.*: give the `next` of the page before": "which form it has depends on another parameter, the status",
    r"give an instant that is still to come": "it depends on the clock",
    r"give an instant within the years 1 to 9999": "no schema bounds a date",
    r"^cron_expression=": "cron is a language of its own",
    r"^rate_limit=.*from one a year to": "it is bounded as a quotient",
    r"printable characters without a space at an end": "no schema says which characters print",
    r"^timezone=": "time zones are what the server's tz database has",
    r"a text of at most 1000 bytes": "maxLength counts characters, Postgres bytes",
    r"\d+ bytes, the limit is": "no schema bounds the size of any JSON",
    r"a NUL character .*, which Postgres does not store": "no schema describes texts within any JSON",
}


class Calls:
    """What was asked of one server, and what came of it."""

    def __init__(self, api: Api) -> None:
        self.headers = {"Authorization": f"Bearer {api.tokens['admin']}"}
        self.schema = schemathesis.openapi.from_url(f"{api.url}/openapi.json", headers=self.headers)
        self.session = requests.Session()
        self.answers, self.beyond = Counter[int](), Counter[str]()
        self.guarded = set[str]()
        self.wrong: dict[tuple[str, str], str] = {}

    def make(self, case: Case) -> None:
        answer = case.call(session=self.session, headers=self.headers)
        self.answers[answer.status_code] += 1
        is_valid = case.meta is not None and case.meta.generation.mode.is_positive
        words = _beyond_a_schema(answer) if is_valid else None
        if words:
            self.beyond[words] += 1
        try:
            case.validate_response(
                answer, headers=self.headers, checks=CHECKS, excluded_checks=self._excluded(case, words, answer)
            )
        except FailureGroup as group:
            for failure in group.exceptions:
                named = (type(failure).__name__, f"{case.method} {case.operation.path}")
                self.wrong.setdefault(named, f"{failure.message}\n{case.as_curl_command()}\n{answer.text[:1000]}")
        if is_valid and answer.status_code < 300:
            self.guarded.add(case.operation.label)

    def _excluded(self, case: Case, words: str | None, answer: Response) -> list[CheckFunction]:
        """`ignored_auth` asks twice more: of each operation it looks at one call that went well.

        What is to be wrong about a query is an empty list at times, of which nothing is sent. A query that is too long
        for a request's line is refused before it is read, with a status that the check does not know.
        """
        excluded: list[CheckFunction] = [positive_data_acceptance] if words else []
        if answer.status_code == 431 or any(value in ([], {}) for value in (case.query or {}).values()):
            excluded.append(negative_data_rejection)
        return [*excluded, ignored_auth] if case.operation.label in self.guarded else excluded

    def told(self, how: str) -> str:
        return (
            f"{how}: {self.answers.total()} calls, by status {dict(sorted(self.answers.items()))}; refused for what no "
            f"schema can say {dict(self.beyond.most_common())}"
        )


def _beyond_a_schema(answer: Response) -> str | None:
    """The row of the table that this refusal is."""
    if answer.status_code != 422:
        return None
    problem = answer.json()
    said = [error["message"] for error in problem.get("errors", ())] or [problem["detail"]]
    rows = [next((row for row in BEYOND_A_SCHEMA if re.search(row, words)), None) for words in said]
    return rows[0] if all(rows) else None


@pytest.fixture(scope="module")
def api(servers: Servers, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    log = tmp_path_factory.mktemp("contract") / "log"
    with servers.cloned(template) as url, serving(url, servers.redis_url, log, QM_HOOKS="true") as api:
        yield api


@pytest.fixture
def calls(api: Api) -> Iterator[Calls]:
    made = Calls(api)
    yield made
    made.session.close()


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_every_generated_call_gets_an_answer_the_document_allows(
    calls: Calls, mode: GenerationMode, sized: Callable[[int, int], int]
) -> None:
    for found in calls.schema.get_all_operations():
        _try(found.ok(), mode, sized(60, 1), calls)
    print(calls.told(mode.value))
    assert calls.answers.total() >= sized(3_000, 80)
    assert not calls.wrong, "\n\n".join(f"{named}: {told}" for named, told in calls.wrong.items())


@pytest.mark.timeout(1_800)
def test_every_bound_the_document_has_is_kept(calls: Calls, sized: Callable[[int, int], int]) -> None:
    """Calls at the edges: each parameter left out, given twice, as short and as long as may be, each other method."""
    modes, schema = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], calls.schema
    for found in schema.get_all_operations():
        operation = found.ok()
        cases = schema.iter_coverage_cases(
            operation, generation_modes=modes, generation_config=schema.config.generation_for(operation=operation)
        )
        for case in islice(cases, sized(200, 4)):
            calls.make(case)
    print(calls.told("edges"))
    assert calls.answers.total() >= sized(2_000, 80)
    assert not calls.wrong, "\n\n".join(f"{named}: {told}" for named, told in calls.wrong.items())


def _try(operation: Any, mode: GenerationMode, examples: int, calls: Calls) -> None:
    """So many generated calls of one operation."""

    @seed(20261121)
    @settings(
        max_examples=examples, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_one(case: Case) -> None:
        calls.make(case)

    with suppress(Unsatisfiable):  # An operation without parameters: there is nothing to get wrong.
        try_one()
