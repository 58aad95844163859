"""What the InstaSites demo says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from demo.instasites.evidence import Progress
from demo.instasites.plan import CUSTOMERS, Customer
from demo.instasites.verdicts import Evidence, Site

#: As many batches as fit beside an account on a line.
BATCHES_SHOWN = 20


def progress_line(p: Progress) -> str:
    large, quiet = (sum(c.sites for c in CUSTOMERS if c.kind == kind) for kind in ("large", "quiet"))
    published = f"published: large {p.large:3}/{large}, quiet {p.quiet:2}/{quiet}"
    builds = f"waiting {p.waiting:3}, running {p.running}, to retry {p.retrying:2}, failed {p.failed}"
    return f"{published}  {builds}  follow-ups {p.followed_up}"


def summary(evidence: Evidence, early_looks: int) -> str:
    return "\n".join([*_accounts(evidence), "", *_totals(evidence, early_looks)])


def _accounts(evidence: Evidence) -> Iterator[str]:
    shown = evidence.batches[:BATCHES_SHOWN]
    more = f" (the first {BATCHES_SHOWN} of {len(evidence.batches)})" if len(evidence.batches) > BATCHES_SHOWN else ""
    yield f"{'account':9} sites  published   first    last  its share of each batch{more}"
    for customer in CUSTOMERS:
        yield _account(customer, [s for s in evidence.sites if s.account == customer.name], shown)


def _account(customer: Customer, sites: Sequence[Site], batches: Sequence[Mapping[str, int]]) -> str:
    finishes = sorted(s.published_at for s in sites if s.published_at is not None)
    first, last = (f"{t:5.1f} s" for t in (finishes[0], finishes[-1])) if finishes else ("-".rjust(7),) * 2
    shares = "".join(f"{batch.get(customer.name, 0) or '.':>4}" for batch in batches)
    return f"{customer.name:9} {len(sites):5}  {len(finishes):9} {first} {last} {shares}"


def _totals(evidence: Evidence, early_looks: int) -> Iterator[str]:
    done = [s for s in evidence.sites if s.published_at is not None]
    retried = len(evidence.runs) - len({run.site for run in evidence.runs})
    yield f"runs        {len(evidence.runs)}, {retried} of them repeated because of a fault"
    yield f"follow-ups  {sum(s.analytics for s in done)} analytics, {sum(s.mails for s in done)} mails"
    verified, wanted = sum(s.domain_verified for s in done), sum(s.domain is not None for s in done)
    at_provider = sum(s.domain_set for s in done)
    yield f"domains     {at_provider} of {wanted} set at a DNS provider, the others by hand; {verified} verified"
    yield f"            {early_looks} looks came before their CNAME"
    yield f"rate        {rate(done):.0f} builds a minute, from the first pass to the last publication"


def rate(done: Sequence[Site]) -> float:
    """Builds a minute."""
    last = max((s.published_at for s in done if s.published_at), default=0.0)
    return len(done) / last * 60 if last else 0.0
