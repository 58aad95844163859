"""What health tells a token beside its answer never delays or fails the answer."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from celeriac import Settings
from celeriac.api import gate, health
from celeriac.api.doctor import Finding
from celeriac.api.problems import Problem
from celeriac.operate.tokens import READ

PRESENTED = {
    "type": "http",
    "client": ("10.0.0.1", 1),
    "headers": [(b"authorization", b"Bearer celeriac_%s_%s" % (16 * b"0", 43 * b"a"))],
}
WRONG = Finding(check="schema", ok=False, says="lacks 0009", cure=None, runbook=None, about="it does not start")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gate, health):
        monkeypatch.setattr(module, "ASIDE", 0.05)


async def never(*_: Any) -> Any:
    await asyncio.Event().wait()


async def away(*_: Any) -> Any:
    raise OperationalError("SELECT 1", {}, ConnectionRefusedError())


async def breaks(*_: Any) -> Any:
    raise KeyError("a defect")


def within(act: Any) -> Any:
    return asyncio.run(asyncio.wait_for(act, 30))


@pytest.mark.parametrize("doctor", [never, away, breaks])
def test_a_doctor_who_does_not_answer_is_left_out(doctor: Any) -> None:
    request: Any = SimpleNamespace(state=SimpleNamespace(bearer=SimpleNamespace(may={READ})))
    figures: Any = SimpleNamespace(doctor=doctor)
    assert within(health._details(request, figures)) == {}


def guard(verified: Any) -> gate.Gate:
    celeriac: Any = SimpleNamespace(settings=Settings(api_failures=1))
    made = gate.Gate(never, celeriac)
    made.verified = verified
    return made


@pytest.mark.parametrize("verified", [never, away])
def test_a_token_that_cannot_be_checked_is_none_at_an_open_path(verified: Any) -> None:
    assert within(guard(verified)._known(PRESENTED)) is None


def test_a_probe_with_a_wrong_token_is_no_failure_of_its_address() -> None:
    async def unknown(_: str) -> None:
        return None

    made = guard(unknown)
    for _ in range(5):
        assert within(made._known(PRESENTED)) is None
    with pytest.raises(Problem) as refused:
        within(made._admit(PRESENTED))
    assert refused.value.status_code == 401


def test_what_is_not_ready_says_what_is_wrong() -> None:
    async def readiness() -> tuple[str, bool]:
        return "the schema is not current", True

    request: Any = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(readiness=readiness)))
    with pytest.raises(Problem) as refused:
        within(health.get_readiness(request, {"wrong": [WRONG]}))
    answer = refused.value.response("/readyz")
    assert (answer.status_code, json.loads(bytes(answer.body))["wrong"]) == (503, [WRONG.model_dump()])
