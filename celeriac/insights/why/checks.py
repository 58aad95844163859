"""Checks: the conditions under which a pass takes a task, each with its answer. `delivery` has the later ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from celeriac.insights.why import lines
from celeriac.insights.why.situation import Situation, is_stale
from celeriac.insights.why.spans import span
from celeriac.store.states import RUNNING, WAITS_FOR_ACCOUNT, WAITS_FOR_LOCK, WAITS_FOR_MEMBERS, WAITS_FOR_TIME

Outcome = Literal["yes", "no", "not asked", "unknown"]

#: The reason a task waits, in one word: that of the first check whose answer is no, or else the task's state.
Reason = Literal[
    "later", "role_unknown", "role_paused", "account_paused", "members", "lock", "rate", "window_full", "account_cap",
    "not_its_turn", "redis_away", "no_pass", "ticket_lost", "taken", "no_worker", "backing_off", "in_queue", "entering",
    "runnable", "running", "finished", "unknown", "locked_row",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """A check's answer. `reason`: only of a "no"."""

    name: str
    outcome: Outcome
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    reason: Reason | None = None


def due(s: Situation) -> Check:
    facts = {"scheduled_for": s.task["scheduled_for"], "expires_at": s.task["expires_at"]}
    seconds = -s.since(s.task["scheduled_for"])
    if s.task["waits_for"] != WAITS_FOR_TIME:
        return Check("due", "yes", f"it was due {span(-seconds)} ago", facts)
    if seconds <= 0:
        return Check("due", "yes", f"it is due since {span(-seconds)}: the role's next pass puts it in line", facts)
    facts |= {"attempt": s.task["retry_count"] + 1}
    return Check("due", "no", f"it is not due yet: in {span(seconds)}", facts, "later")


def role(s: Situation) -> Check:
    name = s.task["role"]
    facts = {"role": name, "paused": s.of.is_paused, "enabled_by": s.of.enabled_by}
    if not s.of.is_known:
        return Check("role", "no", f"no worker or beat that declares {name!r} has started here", facts, "role_unknown")
    if s.of.is_paused:
        return Check("role", "no", "its role is paused", facts, "role_paused")
    return Check("role", "yes", f"its role {name!r} is known and not paused", facts)


def account(s: Situation) -> Check:
    """Check that the account is not paused; a cap of 0 shuts it as a pause does."""
    facts = {"account": s.task["account"], "paused": s.of.account_paused, "cap": s.of.cap}
    if s.of.account_paused:
        return Check("account", "no", "its account is paused", facts, "account_paused")
    if s.of.cap == 0:
        sentence = "its account may have nothing at once: its cap is 0"
        return Check("account", "no", sentence, facts, "account_cap")
    if s.task["waits_for"] == WAITS_FOR_ACCOUNT:
        return Check("account", "yes", "its account was resumed: a worker's next check brings it back", facts)
    return Check("account", "yes", "its account is not paused", facts)


def members(s: Situation) -> Check:
    if s.task["waits_for"] != WAITS_FOR_MEMBERS:
        return Check("members", "yes", "it waits for no others")
    n, newest = s.members.n, s.members.newest
    facts = {"unfinished": n, "newest": newest}
    if n:
        sentence = f"{n} of its members {'has' if n == 1 else 'have'} not finished, task {newest} for one"
        return Check("members", "no", sentence, facts, "members")
    return Check("members", "yes", "all it waits for has finished: a worker's next check lets it through", facts)


def lock(s: Situation) -> Check:
    key = s.task["lock_key"]
    if key is None:
        return Check("lock", "yes", "it needs no lock")
    if s.head is None:
        return _without_head(s, key)
    if s.head.id == s.task["id"]:
        return Check("lock", "yes", f"it has its lock {key!r}", {"lock_key": key})
    return _held(s, key, s.head)


def _without_head(s: Situation, key: str) -> Check:
    facts = {"lock_key": key, "ahead": s.ahead}
    if s.task["waits_for"] == WAITS_FOR_LOCK and s.ahead:
        sentence = f"its lock key {key!r} has no holder: a worker's next check gives it one, {s.ahead} go first"
        return Check("lock", "no", sentence, facts, "lock")
    return Check(
        "lock", "yes", f"its lock key {key!r} has no holder: a worker's next check gives it to this task", facts
    )


def _held(s: Situation, key: str, head: Any) -> Check:
    age, stale = head.heartbeat_age, is_stale(head)
    waiting = lines.behind(s.connection, s.task)
    facts = {
        "lock_key": key, "holder": head.id, "holder_role": head.role, "holder_status": head.status,
        "worker": head.worker_id, "heartbeat_age": age, "stale": stale, "waiting": waiting,
        "place": None if s.ahead is None else s.ahead + 1,
    }  # fmt: skip
    whose = ", whose role is paused" if head.role_paused else ""
    heard = f"stale: its worker {head.worker_id} is silent for" if stale else f"its worker {head.worker_id} was heard"
    where = f"; {heard} {span(age)}{'' if stale else ' ago'}" if head.status == RUNNING else ""
    sentence = f"task {head.id} ({head.role}{whose}) is {head.status} and has its lock {key!r}{where}"
    return Check("lock", "no", sentence, facts, "lock")


def rate(s: Situation) -> Check:
    limit = s.of.rate_limit
    if limit is None or s.tokens is None:
        return Check("rate", "yes", "its role has no rate")
    facts = {"rate_limit": limit, "may_begin": max(0, s.tokens), "claimed": s.held.unstarted}
    if s.tokens < 1:
        sentence = f"as many tasks of its role have begun as its rate lets: {limit}"
        return Check("rate", "no", sentence, facts, "rate")
    return Check("rate", "yes", f"its role's rate {limit} lets {s.tokens} more begin", facts)


def window(s: Situation) -> Check:
    facts = {"window": s.of.size, "held": s.held.n}
    if s.room <= 0:
        sentence = f"the window is full: {s.held.n} of {s.of.size} of its role are claimed or running"
        return Check("window", "no", sentence, facts, "window_full")
    return Check("window", "yes", f"{s.room} of {s.of.size} slots of its role are free", facts)


def cap(s: Situation) -> Check:
    facts = {"account": s.task["account"], "holding": s.holding, "cap": s.of.cap}
    if s.of.cap is None:
        return Check("cap", "yes", "its account has no cap", facts)
    has = f"{s.holding} of the {s.of.cap} it may have at once"
    if s.holding >= s.of.cap:
        return Check("cap", "no", f"its account has {has}", facts, "account_cap")
    return Check("cap", "yes", f"its account has only {has}", facts)


def turn(s: Situation) -> Check:
    """Check whether the next pass reaches it. Slots go to the account with least for its weight, then in rotation."""
    ahead, others = s.ahead_in_account, s.others_first
    facts = {
        "holding": s.holding, "weight": s.of.weight, "cap": s.of.cap, "ahead": ahead, "others_first": others,
        "free": s.free,
    }  # fmt: skip
    first = f"{ahead} of its account and {others}{'+' * (others >= s.free)} of others go first"
    if s.of.cap is not None and ahead >= s.of.cap - s.holding:
        sentence = f"it is not its turn: {ahead} of its account go first, which may have {s.of.cap - s.holding} more"
        return Check("turn", "no", sentence, facts, "not_its_turn")
    if ahead + others >= s.free:
        sentence = f"it is not its turn: a pass has {s.free} slots, {first}{_fairly(s)}"
        return Check("turn", "no", sentence, facts | {"fair": s.fair, "rounds_waited": s.rounds}, "not_its_turn")
    return Check("turn", "yes", f"it is its turn: a pass has {s.free} slots, {first}", facts)


def _fairly(s: Situation) -> str:
    """Return what its account holds, beside its fair share, and for how many rounds it has held nothing."""
    if s.fair is None:
        return ""
    waits = f", and it waits {s.rounds} round{'s' * (s.rounds != 1)} already" if s.rounds else ""
    return f"; its account holds {s.holding}, {s.fair:.1f} would be fair{waits}"
