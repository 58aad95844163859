"""Records: what the batcher decided and why."""

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
from celeriac.insights.shares import Claim, fair_slots

router = APIRouter()

Viewer = Annotated[Page, Depends(May("view"))]
Pass = Annotated[int, Path(ge=1, le=2**63 - 2)]

ROWS = 50


@router.get("/decisions")
def decisions(page: Viewer) -> Response:
    """Of one role, or of all."""
    asked = page.ask("role", "before")
    roles, role = [depth.role for depth in page.read(insights.depth)], asked.get("role")
    found = page.panel(insights.passes, role, limit=ROWS, before=number(asked, "before"))
    return page.show("decisions.html", "Decisions", passes=found, role=role, roles=roles, rows=ROWS)


@router.get("/decisions/{number}")
def decision(number: Pass, page: Viewer) -> Response:
    """What each account had, held and got; and the same answer once more, from what was recorded."""
    role = page.ask("role").get("role")
    found = [] if role is None else page.read(insights.passes, role, limit=1, before=number + 1)
    if not found or found[0]["id"] != number:
        raise Unknown(f"there is no pass {number} of {role!r}; they are kept for a day")
    (one,) = found
    seen = claimants(one["claimants"])
    return page.show(
        "decision.html", f"Decision {number}", one=one, seen=_told(seen, one["free"], one["given"]),
        replay=allocate(seen, one["free"]) if one["given"] else {},
    )  # fmt: skip


def claimants(recorded: Sequence[Mapping[str, Any]]) -> list[Claimant]:
    return [Claimant(**{name: value for name, value in one.items() if name in _KNOWN}) for one in recorded]


_KNOWN = ("account", "waiting", "holding", "weight", "cap")


def _told(seen: Sequence[Claimant], free: int, given: Mapping[str, int]) -> list[dict[str, Any]]:
    """`fair`: what each would hold if these shared out anew what they hold and what was free."""
    fair = fair_slots([Claim(c.holding + c.wants, c.weight) for c in seen], free + sum(c.holding for c in seen))
    return [
        {"claimant": c, "fair": slots, "given": given.get(c.account, 0), "why": why_given(c, given.get(c.account, 0))}
        for c, slots in zip(seen, fair, strict=True)
    ]


def why_given(c: Claimant, given: int) -> str:
    """What an account got, in a sentence."""
    name = c.account or "Nobody's"
    if c.cap is not None and c.holding + given >= c.cap and given < c.waiting:
        return f"{name} got {given}: its cap of {c.cap} is used"
    if given >= c.waiting:
        return f"{name} got {given}: all it had waiting"
    return f"{name} got {given}, its share of what was free"


def number(asked: Mapping[str, str], name: str) -> int | None:
    """Raises BadValue."""
    given = asked.get(name)
    if given is None:
        return None
    if not is_number(given):
        raise BadValue(f"{name}={given!r:.50}: give the number of the last one seen")
    return int(given)
