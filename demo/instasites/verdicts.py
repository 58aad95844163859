"""Judges what happened. Pure: evidence in, verdicts out. Times are seconds, a site's since the first pass."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo.instasites.plan import SERVED, Kind
from demo.verdict import Verdict

MISSING_TEMPLATE = "Template not found"

#: By when, as a share of the large account's sites, every quiet account has to be done.
QUIET_BEFORE = 2 / 3


@dataclass(frozen=True)
class Site:
    """`build`: the state of its build's row, None if there is no row: builds that succeeded leave none.

    `domain_set`: at its account's DNS provider.
    """

    id: int
    account: str
    kind: Kind
    published_at: float | None = None
    build: str | None = None
    error: str | None = None
    domain: str | None = None
    domain_verified: bool = False
    domain_set: bool = False
    analytics: bool = False
    mails: int = 0
    at_duda: int = 0


@dataclass(frozen=True)
class Run:
    """One run of a site's build, as the witness saw it. `ended` None: it did not see the end."""

    site: int
    began: float
    ended: float | None


@dataclass(frozen=True)
class Evidence:
    """`batches`: what each pass gave, by account."""

    sites: Sequence[Site]
    runs: Sequence[Run]
    batches: Sequence[Mapping[str, int]]


def verdicts(evidence: Evidence) -> list[Verdict]:
    """One for each condition; the demo succeeds if all hold."""
    conditions = (
        all_published, one_failed_as_meant, none_lost, none_twice_at_once, one_site_each, all_followed_up,
        domains_set, quiet_accounts_first,
    )  # fmt: skip
    return [condition(evidence) for condition in conditions]


def all_published(evidence: Evidence) -> Verdict:
    meant = [site for site in evidence.sites if site.kind != "broken"]
    done = [site for site in evidence.sites if site.published_at is not None]
    return Verdict({s.id for s in meant} == {s.id for s in done}, f"{len(done)} of {len(meant)} sites are published")


def one_failed_as_meant(evidence: Evidence) -> Verdict:
    failed = [site for site in evidence.sites if site.build == "failed"]
    told = "; ".join(f"{site.account}: {site.error}" for site in failed[:3])
    right = [site.kind for site in failed] == ["broken"] and MISSING_TEMPLATE in (failed[0].error or "")
    return Verdict(
        right, f"{len(failed)} build failed ({told})" if failed else f"no build failed with {MISSING_TEMPLATE}"
    )


def none_lost(evidence: Evidence) -> Verdict:
    waiting, gone = unfinished(evidence), vanished(evidence)
    says = f"{len(waiting) + len(gone)} builds are lost ({len(waiting)} unfinished, {len(gone)} vanished)"
    return Verdict(not waiting and not gone, says)


def unfinished(evidence: Evidence) -> set[int]:
    return {site.id for site in evidence.sites if site.build in ("pending", "claimed", "running")}


def vanished(evidence: Evidence) -> set[int]:
    return {site.id for site in evidence.sites if site.build is None and site.published_at is None}


def none_twice_at_once(evidence: Evidence) -> Verdict:
    """A site whose build nobody saw end says nothing, so it counts against."""
    seen = {run.site for run in evidence.runs if run.ended is not None}
    unseen = {site.id for site in evidence.sites} - seen
    twice = overlapping(evidence.runs)
    more = f"; {len(unseen)} builds had no witness" if unseen else ""
    return Verdict(
        not twice and not unseen, f"{len(twice)} builds ran twice at once, in {len(evidence.runs)} runs{more}"
    )


def overlapping(runs: Sequence[Run]) -> set[int]:
    """The sites with two runs at one time. A run without an end lasts for ever."""
    by_site: dict[int, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.began):
        by_site[run.site].append(run)
    return {site for site, in_order in by_site.items() if _overlap(in_order)}


def _overlap(in_order: Sequence[Run]) -> bool:
    ends = [math.inf if run.ended is None else run.ended for run in in_order]
    return any(later.began < end for later, end in zip(in_order[1:], ends, strict=False))


def one_site_each(evidence: Evidence) -> Verdict:
    wrong = [site for site in evidence.sites if site.at_duda != (0 if site.kind == "broken" else 1)]
    says = "Duda has exactly one site for each" if not wrong else f"Duda has none or several sites for {len(wrong)}"
    return Verdict(not wrong, says)


def all_followed_up(evidence: Evidence) -> Verdict:
    done = [site for site in evidence.sites if site.published_at is not None]
    tracked, mailed = sum(s.analytics for s in done), sum(s.mails == 1 for s in done)
    domains = [site.domain_verified for site in done if site.domain]
    says = f"{tracked} analytics, {mailed} mails, {sum(domains)} of {len(domains)} domains followed"
    return Verdict(tracked == mailed == len(done) and all(domains), says)


def domains_set(evidence: Evidence) -> Verdict:
    """At the DNS provider of the account that has one, and nobody else's there."""
    served = {site.id for site in evidence.sites if site.kind == SERVED and site.domain is not None}
    at_provider = {site.id for site in evidence.sites if site.domain_set}
    return Verdict(
        served == at_provider, f"{len(at_provider)} of {len(served)} domains were set at their account's DNS provider"
    )


def quiet_accounts_first(evidence: Evidence) -> Verdict:
    limit = _nth_finish(evidence, QUIET_BEFORE)
    last = max((_finish(site) for site in evidence.sites if site.kind == "quiet"), default=math.inf)
    says = f"the quiet accounts were done after {last:.1f} s, two thirds of the large one after {limit:.1f} s"
    return Verdict(last < limit < math.inf, says)


def _nth_finish(evidence: Evidence, share: float) -> float:
    """When that share of the large account's sites was published."""
    finishes = sorted(_finish(site) for site in evidence.sites if site.kind == "large")
    return finishes[math.ceil(len(finishes) * share) - 1] if finishes else math.inf


def _finish(site: Site) -> float:
    return math.inf if site.published_at is None else site.published_at
