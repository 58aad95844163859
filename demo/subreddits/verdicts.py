"""What the subreddits' demo concludes. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from demo.verdict import Verdict


@dataclass(frozen=True)
class Crawl:
    """A row, as it ended. `put_off`: when it was for the first time, by the limit or a fault, if it was."""

    subreddit: str
    status: str
    retries: int = 0
    snoozes: int = 0
    put_off: float | None = None


@dataclass(frozen=True)
class Visiting:
    """A crawl as Reddit saw it: from its first request to its last, by one process. Seconds since 1970."""

    subreddit: str
    token: int
    began: float
    ended: float


@dataclass(frozen=True)
class Wish:
    """A user's, once it was accepted."""

    subreddit: str
    at: float


@dataclass(frozen=True)
class Stored:
    """Posts and comments with their authors: those in the database, and those Reddit has; and which Reddit served."""

    things: Mapping[str, str | None]
    served: set[str]
    told: Mapping[str, str | None]

    @property
    def authors(self) -> set[str]:
        return {author for author in self.things.values() if author}

    @property
    def counted(self) -> str:
        posts = sum(thing.startswith("t3_") for thing in self.things)
        return f"{posts} posts and {len(self.things) - posts} comments"


@dataclass(frozen=True)
class Deleted:
    """What the audit trail says went with a subreddit that was deleted."""

    schedules: int
    crawls: int


@dataclass(frozen=True)
class Evidence:
    names: Sequence[str]
    crawls: Sequence[Crawl]
    stored: Stored
    deleted: Deleted
    visits: Sequence[Visiting]
    wishes: Sequence[Wish]
    at_once: int
    limit: Mapping[str, float]


def verdicts(evidence: Evidence) -> list[Verdict]:
    """One for each condition; the demo succeeds if all hold."""
    conditions = (each_crawled_once, all_stored, users_first, none_overlapped, limit_kept, deleted_is_left_alone)
    return [condition(evidence) for condition in conditions]


def each_crawled_once(evidence: Evidence) -> Verdict:
    done = Counter(crawl.subreddit for crawl in evidence.crawls if crawl.status == "completed")
    lost = [crawl for crawl in evidence.crawls if crawl.status != "completed"]
    once = done == Counter(evidence.names)
    says = f"{len(done)} of {len(evidence.names)} subreddits are crawled, {done.total()} crawls succeeded"
    return Verdict(once and not lost, f"{says}, {len(lost)} were lost or failed")


def all_stored(evidence: Evidence) -> Verdict:
    stored = evidence.stored
    same = stored.things == stored.told and stored.things.keys() == stored.served
    authors = {author for author in stored.told.values() if author}
    says = f"{stored.counted} are stored, {len(stored.served)} were served"
    return Verdict(same, f"{says}; {len(stored.authors)} of {len(authors)} authors are stored")


def users_first(evidence: Evidence) -> Verdict:
    """After a wish, only as many others may have their turn before it as had been claimed by then."""
    before = {wish.subreddit: _turns_between(evidence, wish) for wish in evidence.wishes}
    most = max(before.values(), default=math.inf)
    waited = _waited(evidence)
    says = f"{len(before)} users' crawls began after {most:g} at most of {waited} in the background that waited longer"
    return Verdict(most <= evidence.at_once < waited, says)


def _turns(evidence: Evidence) -> dict[str, float]:
    """When each had its first turn: as Reddit saw it, or as a fault or the limit ended it before Reddit did."""
    seen = [(visit.subreddit, visit.began) for visit in evidence.visits]
    turns: dict[str, float] = {}
    for name, at in [*seen, *((c.subreddit, c.put_off) for c in evidence.crawls if c.put_off is not None)]:
        turns[name] = min(at, turns.get(name, math.inf))
    return turns


def _turns_between(evidence: Evidence, wish: Wish) -> float:
    turns, wished = _turns(evidence), {wish.subreddit for wish in evidence.wishes}
    if wish.subreddit not in turns:
        return math.inf
    return sum(wish.at < at < turns[wish.subreddit] for name, at in turns.items() if name not in wished)


def _waited(evidence: Evidence) -> int:
    """In the background, and with their first turn only after the first wish."""
    first, wished = min((wish.at for wish in evidence.wishes), default=math.inf), {w.subreddit for w in evidence.wishes}
    return sum(at > first for name, at in _turns(evidence).items() if name not in wished)


def none_overlapped(evidence: Evidence) -> Verdict:
    seen = {visit.subreddit for visit in evidence.visits}
    twice = {a.subreddit for a, b in combinations(evidence.visits, 2) if a.subreddit == b.subreddit and _overlap(a, b)}
    says = f"{len(twice)} subreddits were crawled twice at once, in {len(evidence.visits)} crawls that Reddit saw"
    return Verdict(not twice and seen == set(evidence.names), says)


def _overlap(a: Visiting, b: Visiting) -> bool:
    return a.began <= b.ended and b.began <= a.ended


def limit_kept(evidence: Evidence) -> Verdict:
    limit = evidence.limit
    says = f"Reddit refused {limit['refused']} requests beyond its limit of {limit['requests']} a window"
    return Verdict(limit["refused"] == 0 and limit["windows"] > 1, f"{says}, in {limit['windows']} windows")


def deleted_is_left_alone(evidence: Evidence) -> Verdict:
    """That Reddit was not asked about it is judged with the others: what it saw are the subreddits there are."""
    went = evidence.deleted
    says = f"a subreddit that was deleted took {went.schedules} schedule and {went.crawls} waiting crawl with it"
    return Verdict((went.schedules, went.crawls) == (1, 1), says)
