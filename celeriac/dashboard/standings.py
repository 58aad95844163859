"""The table of accounts: what each has waiting and holds, what its tasks came to lately, and what is set for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from celeriac.dashboard.reading import Content

#: What holds for an account that nobody set anything for.
UNSET = {"weight": 1.0, "cap": None, "paused": False}


def names(panels: Mapping[str, Content], *, only_set: bool) -> list[str]:
    """Who lacks most first, then whose tasks ended, then those that something is set for; or these alone."""
    policies = [row["account"] for row in panels["policies"].value or ()]
    if only_set:
        return policies
    shares = panels["shares"].value.accounts if panels["shares"].value else ()
    ended = [one.account for one in panels["hours"].value or ()]
    return list(dict.fromkeys([*(one.account for one in shares), *ended, *policies]))


def standings(names: Sequence[str], panels: Mapping[str, Content], policies: Content) -> list[dict[str, Any]]:
    """A row for each. None is not known, as that panel was stopped; `share` None else: it has and holds nothing."""
    shares = {one.account: one for one in panels["shares"].value.accounts} if panels["shares"].value else {}
    hours = {one.account: one for one in panels["hours"].value or ()}
    known: Mapping[str, Any] = policies.value or {}
    return [
        {"account": name, "share": shares.get(name), "hour": hours.get(name), "policy": UNSET | known.get(name, {})}
        for name in names
    ]
