"""The stores' demo judges: what went right passes, and each thing that can go wrong is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from demo.stores.evidence import OWN, Asked, Evidence, Visits, at_once
from demo.stores.verdicts import verdicts
from sandbox.webmenus import Visit

ASKED = Asked(stores=5, products=4, changed=10, planned=5, planned_again=0, run_now_was_new=False)
PER_STORE = ("entry_point_discovery", "product_discovery", "product_resync")
VISITS = Visits(Counter({"127.0.0.11": 4, "127.0.0.12": 3}), known=0, at_once=0, leak_found=True, held=0)
GOOD = Evidence(
    ASKED, stores=5, resolved=5, products=20, on_menu=15, menu=15, changes=30, analysed=15, runs=16, overlaps=0,
    repeated=1, tasks={("store_discovery", "completed"): 1} | {(role, "completed"): 5 for role in PER_STORE},
    visits=VISITS,
)  # fmt: skip


def test_what_went_right_passes() -> None:
    assert all(verdict.holds for verdict in verdicts(GOOD))


@pytest.mark.parametrize(
    "wrong",
    [
        {"stores": 4},
        {"resolved": 4},
        {"products": 19},
        {"on_menu": 16},
        {"changes": 29},
        {"changes": 31},
        {"overlaps": 1},
        {"runs": 0},
        {"analysed": 14},
        {"tasks": {**GOOD.tasks, ("product_resync", "failed"): 1}},
        {"tasks": {**GOOD.tasks, ("product_discovery", "completed"): 4}},
        {"asked": replace(ASKED, planned_again=1)},
        {"asked": replace(ASKED, planned=4)},
        {"asked": replace(ASKED, run_now_was_new=True)},
        {"visits": replace(VISITS, by=Counter({"127.0.0.11": 7}))},
        {"visits": replace(VISITS, held=1)},
        {"visits": replace(VISITS, at_once=1)},
        {"visits": replace(VISITS, known=1)},
        {"visits": replace(VISITS, leak_found=False)},
        {"visits": replace(VISITS, by=VISITS.by + Counter({OWN: 1}))},
    ],
)
def test_each_thing_that_can_go_wrong_is_told(wrong: dict[str, Any]) -> None:
    assert [verdict.holds for verdict in verdicts(replace(GOOD, **wrong))].count(False) == 1


def test_visits_at_one_time_by_one_proxy_show() -> None:
    def visit(address: str, began: float, ended: float) -> Visit:
        return Visit("stores", address, "agent", "", began, ended=ended)

    one = visit("127.0.0.11", 1, 3)
    assert at_once([one, visit("127.0.0.11", 2, 4)]) == 1
    assert at_once([one, visit("127.0.0.12", 2, 4)]) == 0
    assert at_once([one, visit("127.0.0.11", 3, 4)]) == 0
