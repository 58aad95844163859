"""Faults come as planned or ordered, and the same seed brings the same ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx
import pytest

import sandbox
from sandbox.faults import KINDS, Faults, Plan, draw, evenly, latency_range
from tests.processes import until

SITES = "/api/sites/multiscreen"
CREATE = {"template_id": sandbox.TEMPLATES[0], "site_data": {"external_uid": "job-1"}}


def fates(seed: int) -> list[Any]:
    plan = Plan(latency_ms=(50, 200), rates=evenly(0.5), seed=seed)
    return [draw(plan, "create", f"job-{n}", 1) for n in range(50)]


def test_the_same_seed_draws_the_same_fates_and_another_seed_others() -> None:
    assert fates(1) == fates(1)
    assert fates(1) != fates(2)


def test_a_fate_does_not_depend_on_what_other_requests_came_before() -> None:
    plan = Plan(rates=evenly(0.5), seed=3)
    one_by_one, interleaved = Faults(plan), Faults(plan)
    expected = [one_by_one.next_fate("create", "a") for _ in range(20)]
    for n in range(20):
        interleaved.next_fate("create", f"other-{n}")
        assert interleaved.next_fate("create", "a") == expected[n]


def test_the_rate_is_met_and_shared_evenly() -> None:
    plan = Plan(rates=evenly(0.35))
    met = Counter(draw(plan, "create", str(n), 1).fault for n in range(7000))
    assert met[None] == pytest.approx(0.65 * 7000, rel=0.05)
    assert all(met[kind] == pytest.approx(350, rel=0.25) for kind in KINDS)


def test_latency_stays_in_its_range() -> None:
    plan = Plan(latency_ms=(50, 200))
    latencies = [draw(plan, "get", str(n), 1).latency_seconds for n in range(1000)]
    assert 0.05 <= min(latencies) < 0.06
    assert 0.19 < max(latencies) <= 0.2


@pytest.mark.parametrize(
    "wanted",
    [
        {"latency_ms": [200, 50]},
        {"latency_ms": "fast"},
        {"latency_ms": [1, 2, 3]},
        {"rates": {"earthquake": 0.1}},
        {"rates": {"hang_before": 0.6, "hang_after": 0.6}},
        {"rates": {"hang_before": -0.1}},
        {"faults": 1.5},
        {"orders": [{"kind": "earthquake"}]},
        {"speed": 3},
    ],
)
def test_an_impossible_plan_is_refused_and_changes_nothing(api: httpx.Client, wanted: dict[str, Any]) -> None:
    before = api.get("/_sandbox/faults").json()
    answer = api.put("/_sandbox/faults", json=wanted)
    assert answer.status_code == 400
    assert answer.json()["message"]
    assert api.get("/_sandbox/faults").json() == before


def test_the_plan_changes_while_running(api: httpx.Client) -> None:
    api.put("/_sandbox/faults", json={"rates": {"rate_limited": 1}, "retry_after": 7})
    answer = api.post(f"{SITES}/create", json=CREATE)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    api.put("/_sandbox/faults", json={"faults": 0})
    assert api.post(f"{SITES}/create", json=CREATE).status_code == 200
    assert api.get("/_sandbox/faults").json()["met"] == {"rate_limited": 1, "none": 1}


def test_an_order_hits_the_next_request_of_its_operation_and_no_other(api: httpx.Client) -> None:
    api.put("/_sandbox/faults", json={"orders": [{"kind": "server_error", "operation": "create"}]})
    assert api.get(f"{SITES}/byexternalid/job-1").status_code == 200
    assert api.post(f"{SITES}/create", json=CREATE).status_code in (500, 502, 503)
    assert api.post(f"{SITES}/create", json=CREATE).status_code == 200


ONE: dict[str, int] = {"job-1": 1}


@pytest.mark.parametrize(
    ("kind", "error", "at_first", "in_the_end"),
    [
        ("reset_before", httpx.ReadError, {}, {}), ("reset_after", httpx.ReadError, ONE, ONE),
        ("hang_before", httpx.ReadTimeout, {}, {}), ("hang_after", httpx.ReadTimeout, ONE, ONE),
        ("hang_late", httpx.ReadTimeout, {}, ONE),
    ],
)  # fmt: skip
def test_resets_and_hangs_come_before_or_after_the_effect(
    api: httpx.Client, outside: sandbox.Sandbox, kind: Any, error: type[httpx.RequestError],
    at_first: dict[str, int], in_the_end: dict[str, int],
) -> None:  # fmt: skip
    def ended() -> bool:
        outside.release()
        return bool(outside.describe()["in_flight"] == 0)

    outside.faults.order(kind)
    with pytest.raises(error):
        api.post(f"{SITES}/create", json=CREATE, timeout=0.3)
    # On a busy machine the client may give up before the server begins.
    until(lambda: outside.describe()["requests"] == {"create": 1} and outside.describe()["creates"] == at_first, kind)
    until(ended, "the request's end")
    assert outside.describe()["creates"] == in_the_end


def test_a_reset_is_an_rst_not_a_mere_end(api: httpx.Client, outside: sandbox.Sandbox) -> None:
    outside.faults.order("reset_before")
    with pytest.raises(httpx.ReadError, match="reset by peer"):
        api.get(f"{SITES}/byexternalid/job-1")


@pytest.mark.parametrize(("text", "range_"), [("50-200", (50, 200)), ("50", (50, 50)), ([1, 2], (1, 2))])
def test_latency_is_read_from_text_or_pair(text: Any, range_: tuple[float, float]) -> None:
    assert latency_range(text) == range_
