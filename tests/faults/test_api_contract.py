"""schemathesis against the API's own document: no 5xx, and no answer the document does not allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.api.server import Api, serving
from tests.conftest import Servers

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
def api(servers: Servers, database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Api]:
    with serving(database_url, redis_url, tmp_path / "log", QM_HOOKS="true") as api:
        yield api


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_every_generated_call_gets_an_answer_the_document_allows(
    api: Api, mode: GenerationMode, sized: Callable[[int, int], int]
) -> None:
    headers = {"Authorization": f"Bearer {api.tokens['admin']}"}
    schema = schemathesis.openapi.from_url(f"{api.url}/openapi.json", headers=headers)
    session, answers = requests.Session(), Counter[int]()
    for found in schema.get_all_operations():
        _try(found.ok(), mode, sized(50, 2), headers, session, answers)
    session.close()
    print(f"{mode.value}: {answers.total()} calls, by status {dict(sorted(answers.items()))}")
    assert answers.total() >= sized(2_000, 80)
    assert not [status for status in answers if status >= 500]


def _try(
    operation: Any, mode: GenerationMode, examples: int, headers: dict[str, str], session: requests.Session,
    answers: Counter[int],
) -> None:  # fmt: skip
    """So many generated calls of one operation."""

    @seed(20261121)
    @settings(
        max_examples=examples, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_one(case: Case) -> None:
        answer = case.call(session=session, headers=headers)
        answers[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)

    with suppress(Unsatisfiable):  # An operation without parameters: there is nothing to get wrong.
        try_one()
