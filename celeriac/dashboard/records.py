"""Decisions: which accounts got slots in a pass, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.dashboard.forms import Place, number
from celeriac.dashboard.guard import Viewer
from celeriac.dispatch.fairness import Claimant, allocate
from celeriac.errors import Unknown
from celeriac.insights.fairness.shares import Claim, fair_slots

router = APIRouter()


ROWS = 50

#: Fields of a claimant in a record; a later release may record more.
_KNOWN = ("account", "waiting", "holding", "weight", "cap")


@router.get("/decisions")
def decisions(page: Viewer) -> Response:
    """List the decisions of one role, or of all."""
    asked = page.ask("role", "before")
    roles, role = [depth.role for depth in page.read(insights.depth)], asked.get("role")
    passes = page.panel(insights.passes, role, limit=ROWS, before=number(asked, "before"))
    return page.show("decisions.html", "Decisions", passes=passes, role=role, roles=roles, rows=ROWS)


@router.get("/decisions/{number}")
def decision(number: Place, page: Viewer) -> Response:
    """Show what each account had, held and got, and recompute the decision from the record."""
    role = page.ask("role").get("role")
    passes = [] if role is None else page.read(insights.passes, role, limit=1, before=number + 1)
    if not passes or passes[0]["id"] != number:
        raise Unknown(f"there is no pass {number} of {role!r}; they are kept for a day")
    (one,) = passes
    seen = [Claimant(**{name: claimant[name] for name in _KNOWN if name in claimant}) for claimant in one["claimants"]]
    return page.show(
        "decision.html", f"Decision {number}", one=one, seen=_shared_out(seen, one["free"], one["given"]),
        replay=allocate(seen, one["free"]) if one["given"] else {},
    )  # fmt: skip


def _shared_out(seen: Sequence[Claimant], free: int, shared: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return each account's row. `fair`: the slots it would have if held and free ones were allocated anew."""
    fair = fair_slots([Claim(c.holding + c.wants, c.weight) for c in seen], free + sum(c.holding for c in seen))
    got = [shared.get(c.account, 0) for c in seen]
    return [
        {"claimant": c, "fair": slots, "given": n, "why": why_so_many(c, n)}
        for c, slots, n in zip(seen, fair, got, strict=True)
    ]


def why_so_many(c: Claimant, slots: int) -> str:
    """Explain an account's number of slots in a sentence."""
    name = c.account or "Nobody's"
    if c.cap is not None and c.holding + slots >= c.cap and slots < c.waiting:
        return f"{name} got {slots}: its cap of {c.cap} is used"
    if slots >= c.waiting:
        return f"{name} got {slots}: all it had waiting"
    return f"{name} got {slots}, its share of what was free"
