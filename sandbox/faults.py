"""What goes wrong, decided ahead: latency and faults, drawn from a seed or ordered one by one.

A request's fate depends on the seed, on what it asks and on how often that was asked before, not on
which thread comes first: a run with the same seed and the same requests meets the same faults.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

Kind = Literal[
    "rate_limited",  # 429 with Retry-After, no effect
    "server_error",  # 500, 502 or 503, no effect
    "hang_before",  # no answer for `hang_seconds`, no effect
    "hang_after",  # the effect, then no answer
    "hang_late",  # no answer for `hang_seconds`, then the effect: the client has long given up
    "reset_before",  # connection reset, no effect
    "reset_after",  # the effect, then connection reset
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Plan:
    """latency_ms: lowest and highest delay of an answer, milliseconds. rates: probability per request of each
    kind. hang_seconds: how long a hanging request is held. retry_after: seconds to tell with a 429;
    retry_after_date: tell them as an HTTP date. Raises ValueError for what cannot be.
    """

    latency_ms: tuple[float, float] = (0, 0)
    rates: Mapping[Kind, float] = field(default_factory=dict)
    hang_seconds: float = 60.0
    retry_after: float = 1.0
    retry_after_date: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        low, high = self.latency_ms
        if not 0 <= low <= high:
            raise ValueError(f"latency_ms is {low}-{high}: give the lowest, then the highest, such as 50-200")
        unknown = set(self.rates) - set(KINDS)
        if unknown:
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
        if min(self.rates.values(), default=0) < 0 or sum(self.rates.values()) > 1:
            raise ValueError(f"fault rates {dict(self.rates)} must be at least 0 each and at most 1 together")


@dataclass(frozen=True)
class Order:
    """One fault for the next request of `operation` (any, if None)."""

    kind: Kind
    operation: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no such fault: {self.kind}; there are {', '.join(KINDS)}")


@dataclass(frozen=True)
class Fate:
    """What happens to one request; `server_error` is the status, should that be the fault."""

    latency_seconds: float
    fault: Kind | None
    server_error: int


def evenly(rate: float) -> dict[Kind, float]:
    """The total `rate` (0 to 1) shared evenly among all kinds of faults."""
    return {kind: rate / len(KINDS) for kind in KINDS} if rate else {}


def draw(plan: Plan, operation: str, subject: str, occurrence: int) -> Fate:
    """The fate of the `occurrence`-th request that does `operation` to `subject`."""
    dice = random.Random(f"{plan.seed}/{operation}/{subject}/{occurrence}")
    latency = dice.uniform(*plan.latency_ms) / 1000
    kinds = [*plan.rates, None]
    weights = [*plan.rates.values(), max(0.0, 1 - sum(plan.rates.values()))]
    return Fate(latency, dice.choices(kinds, weights)[0], dice.choice((500, 502, 503)))


class Faults:
    """The plan in force and the orders still open, changeable while requests run."""

    def __init__(self, plan: Plan | None = None) -> None:
        self._lock = threading.Lock()
        self._plan = self._first = plan or Plan()
        self._orders: list[Order] = []
        self._seen: Counter[tuple[str, str]] = Counter()
        self._met: Counter[str] = Counter()

    @property
    def plan(self) -> Plan:
        return self._plan

    def order(self, kind: Kind, operation: str | None = None) -> None:
        """The next request of `operation` meets `kind`, whatever the rates say."""
        with self._lock:
            self._orders.append(Order(kind, operation))

    def next_fate(self, operation: str, subject: str) -> Fate:
        with self._lock:
            self._seen[operation, subject] += 1
            fate = draw(self._plan, operation, subject, self._seen[operation, subject])
            ordered = self._take_order(operation)
            if ordered is not None:
                fate = replace(fate, fault=ordered.kind)
            self._met[fate.fault or "none"] += 1
            return fate

    def _take_order(self, operation: str) -> Order | None:
        for place, order in enumerate(self._orders):
            if order.operation in (None, operation):
                return self._orders.pop(place)
        return None

    def change(self, wanted: Mapping[str, Any]) -> None:
        """Takes fields of Plan, `faults` (a total rate, shared evenly) and `orders` (a list of orders).

        A new seed starts the counting of requests afresh. Raises ValueError, and then changes nothing.
        """
        plan_changes, orders = _read(wanted)
        with self._lock:
            self._plan = replace(self._plan, **plan_changes)
            self._orders += orders
            if "seed" in plan_changes:
                self._seen.clear()

    def reset(self) -> None:
        """The plan it began with, and no order."""
        with self._lock:
            self._plan = self._first
            self._orders.clear()

    def describe(self) -> dict[str, Any]:
        with self._lock:
            return {**asdict(self._plan), "orders": [asdict(o) for o in self._orders], "met": dict(self._met)}


def _read(wanted: Mapping[str, Any]) -> tuple[dict[str, Any], list[Order]]:
    known = {f.name for f in fields(Plan)}
    unknown = set(wanted) - known - {"faults", "orders"}
    if unknown:
        raise ValueError(
            f"no such setting: {', '.join(sorted(unknown))}; there are faults, orders, {', '.join(sorted(known))}"
        )
    changes = {name: value for name, value in wanted.items() if name in known}
    if "latency_ms" in changes:
        changes["latency_ms"] = latency_range(changes["latency_ms"])
    if "faults" in wanted:
        changes["rates"] = evenly(wanted["faults"])
    return changes, [Order(**order) for order in wanted.get("orders", ())]


def latency_range(value: str | Sequence[float]) -> tuple[float, float]:
    """Milliseconds from `"50-200"`, `"50"` or `[50, 200]`. Raises ValueError."""
    try:
        low, high = map(float, _ends(value) if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise ValueError(f"latency_ms is {value!r}: give a range in milliseconds, such as 50-200") from None
    return low, high


def _ends(text: str) -> tuple[str, str]:
    low, dash, high = text.partition("-")
    return low, high if dash else low
