"""The demo's judgement: it accepts what should happen, and each of its conditions can fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from demo.instasites import verdicts
from demo.instasites.plan import BUILDS, CUSTOMERS
from demo.instasites.screen import summary
from demo.instasites.verdicts import Evidence, Run, Site, overlapping

Change = Callable[[Site], Site]


def good() -> Evidence:
    """What a run comes to if all is well: the quiet accounts at 10 s, the large one a site every 0.2 s."""
    customers = [customer for customer in CUSTOMERS for _ in range(customer.sites)]
    sites = [_built(Site(n, c.name, c.kind)) for n, c in enumerate(customers)]
    return Evidence(sites, [Run(site.id, 1.0, 2.0) for site in sites], [{"large": 12, "quiet 1": 12}])


def _built(site: Site) -> Site:
    if site.kind == "broken":
        return replace(site, build="failed", error="Permanent: Template not found")
    finish = 0.2 * site.id if site.kind == "large" else 10.0
    domain = {"domain": "www.example.com", "domain_verified": True, "domain_set": site.kind == "large"}
    given = domain if site.id % 10 == 3 else {}
    return replace(site, published_at=finish, analytics=True, mails=1, at_duda=1, **given)


def changed(evidence: Evidence, site: int, **fields: Any) -> Evidence:
    sites = list(evidence.sites)
    sites[site] = replace(sites[site], **fields)
    return replace(evidence, sites=sites)


def failing(evidence: Evidence) -> set[str]:
    conditions = (
        verdicts.all_published, verdicts.one_failed_as_meant, verdicts.none_lost, verdicts.none_twice_at_once,
        verdicts.one_site_each, verdicts.all_followed_up, verdicts.domains_set,
        verdicts.quiet_accounts_first,
    )  # fmt: skip
    assert len(verdicts.verdicts(evidence)) == len(conditions)
    assert [c(evidence) for c in conditions] == verdicts.verdicts(evidence)
    return {condition.__name__ for condition in conditions if not condition(evidence).holds}


LARGE, WITH_DOMAIN, QUIET, BROKEN = 0, 3, 200, 260


def test_the_demo_builds_261_sites_of_which_one_cannot_be_built() -> None:
    assert (BUILDS, [c.sites for c in CUSTOMERS], CUSTOMERS[-1].kind) == (261, [200, 15, 15, 15, 15, 1], "broken")
    assert failing(good()) == set()


@pytest.mark.parametrize(
    ("site", "fields", "fails"),
    [
        (BROKEN, {"published_at": 5.0, "analytics": True, "mails": 1}, {"all_published"}),
        (BROKEN, {"published_at": 5.0}, {"all_published", "all_followed_up"}),
        (BROKEN, {"error": "DudaUnavailable: 500"}, {"one_failed_as_meant"}),
        (BROKEN, {"error": None}, {"one_failed_as_meant"}),
        (BROKEN, {"build": "pending"}, {"one_failed_as_meant", "none_lost"}),
        (BROKEN, {"build": None}, {"one_failed_as_meant", "none_lost"}),
        (BROKEN, {"at_duda": 1}, {"one_site_each"}),
        (LARGE, {"published_at": None}, {"all_published", "none_lost"}),
        (LARGE, {"published_at": None, "build": "failed", "error": "x"}, {"all_published", "one_failed_as_meant"}),
        (LARGE, {"published_at": None, "build": "cancelled"}, {"all_published"}),
        (LARGE, {"build": "running"}, {"none_lost"}),
        (LARGE, {"build": "claimed"}, {"none_lost"}),
        (LARGE, {"at_duda": 2}, {"one_site_each"}),
        (LARGE, {"at_duda": 0}, {"one_site_each"}),
        (LARGE, {"analytics": False}, {"all_followed_up"}),
        (LARGE, {"mails": 0}, {"all_followed_up"}),
        (LARGE, {"mails": 2}, {"all_followed_up"}),
        (WITH_DOMAIN, {"domain_verified": False}, {"all_followed_up"}),
        (WITH_DOMAIN, {"domain_set": False}, {"domains_set"}),
        (QUIET, {"domain_set": True}, {"domains_set"}),
        (QUIET, {"published_at": 26.7}, {"quiet_accounts_first"}),
        (QUIET, {"published_at": None}, {"all_published", "none_lost", "quiet_accounts_first"}),
    ],
)  # fmt: skip
def test_each_condition_fails_where_it_should(site: int, fields: dict[str, Any], fails: set[str]) -> None:
    assert failing(changed(good(), site, **fields)) == fails


@pytest.mark.parametrize(
    "runs",
    [
        [Run(0, 1.0, 2.0), Run(0, 1.9, 3.0)],
        [Run(0, 1.9, 3.0), Run(0, 1.0, 2.0)],
        [Run(0, 1.0, 9.0), Run(0, 2.0, 3.0)],
        [Run(0, 1.0, None), Run(0, 2.0, 3.0)],
    ],
)
def test_a_build_that_ran_twice_at_once_is_seen(runs: list[Run]) -> None:
    evidence = good()
    assert failing(replace(evidence, runs=[*evidence.runs[1:], *runs])) == {"none_twice_at_once"}


def test_runs_one_after_the_other_are_no_overlap() -> None:
    evidence = good()
    assert failing(replace(evidence, runs=[*evidence.runs, Run(0, 2.0, 3.0), Run(0, 3.5, 4.0)])) == set()


@pytest.mark.parametrize("seen", [[], [Run(0, 1.0, None)]])
def test_a_build_nobody_saw_end_is_no_evidence_of_running_once(seen: list[Run]) -> None:
    evidence = good()
    assert failing(replace(evidence, runs=[*seen, *evidence.runs[1:]])) == {"none_twice_at_once"}


def test_no_sites_at_all_is_no_success() -> None:
    assert "quiet_accounts_first" in failing(Evidence([], [], []))
    assert "one_failed_as_meant" in failing(Evidence([], [], []))


def test_the_quiet_accounts_are_measured_against_two_thirds_of_the_large_one() -> None:
    two_thirds = changed(good(), QUIET, published_at=0.2 * 133)
    assert failing(two_thirds) == {"quiet_accounts_first"}
    assert failing(changed(good(), QUIET, published_at=0.2 * 133 - 0.01)) == set()


moments = some.floats(0, 100)
runs = some.lists(some.builds(Run, some.integers(0, 3), moments, some.none() | moments), max_size=8)


@given(runs.map(lambda found: [r for r in found if r.ended is None or r.began < r.ended]))
def test_overlaps_are_those_of_any_two_runs(found: Sequence[Run]) -> None:
    def end(run: Run) -> float:
        return math.inf if run.ended is None else run.ended

    pairs = [(a, b) for i, a in enumerate(found) for b in found[i + 1 :] if a.site == b.site]
    assert overlapping(found) == {a.site for a, b in pairs if a.began < end(b) and b.began < end(a)}


def test_the_summary_tells_each_account_and_its_share_of_the_batches() -> None:
    lines = summary(good(), early_looks=4).splitlines()
    assert lines[1].split() == ["large", "200", "200", "0.0", "s", "39.8", "s", "12"]
    assert lines[2].split() == ["quiet", "1", "15", "15", "10.0", "s", "10.0", "s", "12"]
    assert lines[6].split() == ["broken", "1", "0", "-", "-", "."]
    assert "20 of 26 set at a DNS provider, the others by hand; 26 verified" in lines[-3]
    assert "4 looks came before" in lines[-2]
    assert lines[-1].startswith("rate        392 builds a minute")
