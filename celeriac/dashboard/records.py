"""Records: what the batcher decided, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response

from celeriac import insights
from celeriac.dashboard.forms import is_number
from celeriac.dashboard.guard import May
from celeriac.dashboard.page import Page
from celeriac.dispatch.fairness import Claimant, allocate
from celeriac.errors import BadValue, Unknown
from celeriac.insights.fairness.shares import Claim, fair_slots

router = APIRouter()

Viewer = Annotated[Page, Depends(May("view"))]
Pass = Annotated[int, Path(ge=1, le=2**63 - 2)]

ROWS = 50


@router.get("/decisions")
def decisions(page: Viewer) -> Response:
    """Show the decisions of one role, or of all."""
    asked = page.ask("role", "before")
    roles, role = [depth.role for depth in page.read(insights.depth)], asked.get("role")
    passes = page.panel(insights.passes, role, limit=ROWS, before=number(asked, "before"))
    return page.show("decisions.html", "Decisions", passes=passes, role=role, roles=roles, rows=ROWS)


@router.get("/decisions/{number}")
def decision(number: Pass, page: Viewer) -> Response:
    """Show what each account had, held and got, and recompute the decision from the record."""
    role = page.ask("role").get("role")
    passes = [] if role is None else page.read(insights.passes, role, limit=1, before=number + 1)
    if not passes or passes[0]["id"] != number:
        raise Unknown(f"there is no pass {number} of {role!r}; they are kept for a day")
    (one,) = passes
    seen = claimants(one["claimants"])
    return page.show(
        "decision.html", f"Decision {number}", one=one, seen=_shared_out(seen, one["free"], one["given"]),
        replay=allocate(seen, one["free"]) if one["given"] else {},
    )  # fmt: skip


def claimants(recorded: Sequence[Mapping[str, Any]]) -> list[Claimant]:
    return [Claimant(**{name: value for name, value in one.items() if name in _KNOWN}) for one in recorded]


_KNOWN = ("account", "waiting", "holding", "weight", "cap")


def _shared_out(seen: Sequence[Claimant], free: int, shared: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return each account's row. `fair`: the slots it would hold if held and free ones were allocated anew."""
    fair = fair_slots([Claim(c.holding + c.wants, c.weight) for c in seen], free + sum(c.holding for c in seen))
    return [
        {
            "claimant": c,
            "fair": slots,
            "given": shared.get(c.account, 0),
            "why": why_so_many(c, shared.get(c.account, 0)),
        }
        for c, slots in zip(seen, fair, strict=True)
    ]


def why_so_many(c: Claimant, slots: int) -> str:
    """Return an account's result in a sentence."""
    name = c.account or "Nobody's"
    if c.cap is not None and c.holding + slots >= c.cap and slots < c.waiting:
        return f"{name} got {slots}: its cap of {c.cap} is used"
    if slots >= c.waiting:
        return f"{name} got {slots}: all it had waiting"
    return f"{name} got {slots}, its share of what was free"


def number(asked: Mapping[str, str], name: str) -> int | None:
    """Return a number of the query, None without one. Raises BadValue."""
    text = asked.get(name)
    if text is None:
        return None
    if not is_number(text):
        raise BadValue(f"{name}={text!r:.50}: give the number of the last one seen")
    return int(text)
