"""The "Distribution Logic" the InstaSite build job documents, line by line, as an oracle.

Only its defect is made visible: where the original would loop for ever it raises NeverEnds.
"""

from __future__ import annotations

from collections.abc import Mapping

BATCH = 60


class NeverEnds(Exception):
    """`parseInt((60 - n) / accounts)` became 0: nothing is taken any more, and the loop goes on."""


def distribute(queues: Mapping[str, int]) -> dict[str, int]:
    """Slots per account for `queues` (account: rows waiting), as the seed gives them with `last_account_id` null."""
    users = {account: waiting for account, waiting in sorted(queues.items()) if waiting}
    if sum(users.values()) <= BATCH:
        return users
    if len(users) >= BATCH:
        return dict.fromkeys(list(users)[:BATCH], 1)
    return _shared(users)


def _shared(users: dict[str, int]) -> dict[str, int]:
    built: dict[str, int] = {}
    while sum(built.values()) != BATCH and users:
        r = (BATCH - sum(built.values())) // len(users)
        if r == 0:
            raise NeverEnds
        for account, waiting in list(users.items()):
            built[account] = built.get(account, 0) + min(waiting, r)
            users[account] -= min(waiting, r)
            if waiting <= r:
                del users[account]
    return built
