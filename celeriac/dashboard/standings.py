"""The table of accounts: what each has waiting and holds, how its tasks ended lately, and its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from celeriac.dashboard.reading import Content

#: The policy of an account without one.
UNSET = {"weight": 1.0, "cap": None, "paused": False}


def names(panels: Mapping[str, Content], *, only_set: bool) -> list[str]:
    """Return accounts: those that lack most, then those with ended tasks, then policies'. `only_set`: only the last."""
    policies = [row["account"] for row in panels["policies"].value or ()]
    if only_set:
        return policies
    shares = panels["shares"].value.accounts if panels["shares"].value else ()
    ended = [one.account for one in panels["hours"].value or ()]
    return list(dict.fromkeys([*(one.account for one in shares), *ended, *policies]))


def standings(names: Sequence[str], panels: Mapping[str, Content], policies: Content) -> list[dict[str, Any]]:
    """Return a row for each. `share`, `hour` None: unknown if that panel was stopped, else it has and holds nothing."""
    shares = {one.account: one for one in panels["shares"].value.accounts} if panels["shares"].value else {}
    hours = {one.account: one for one in panels["hours"].value or ()}
    known: Mapping[str, Any] = policies.value or {}
    return [
        {"account": name, "share": shares.get(name), "hour": hours.get(name), "policy": UNSET | known.get(name, {})}
        for name in names
    ]
