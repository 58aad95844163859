"""Judges what happened. Pure: evidence in, verdicts out."""

from __future__ import annotations

from demo.stores.evidence import OWN, Evidence
from demo.verdict import Verdict

PER_STORE = ("entry_point_discovery", "product_discovery", "product_resync")


def verdicts(evidence: Evidence) -> list[Verdict]:
    """One for each condition; the demo succeeds if all hold."""
    conditions = (
        all_discovered, all_resolved, all_stocked, history_is_exact, one_at_a_time, nothing_lost, nothing_doubled,
        analytics_agree, proxies_take_turns, visitors_are_strangers, the_leak_is_found,
    )  # fmt: skip
    return [condition(evidence) for condition in conditions]


def all_discovered(evidence: Evidence) -> Verdict:
    wanted = evidence.asked.stores
    return Verdict(evidence.stores == wanted, f"{evidence.stores} of {wanted} stores are discovered")


def all_resolved(evidence: Evidence) -> Verdict:
    wanted = evidence.asked.stores
    return Verdict(evidence.resolved == wanted, f"{evidence.resolved} of {wanted} entry points are resolved, rightly")


def all_stocked(evidence: Evidence) -> Verdict:
    wanted = evidence.asked.stores * evidence.asked.products
    holds = evidence.products == wanted and evidence.on_menu == evidence.menu
    return Verdict(
        holds,
        f"{evidence.products} of {wanted} products are stored; {evidence.on_menu} of {evidence.menu} are on a menu",
    )


def history_is_exact(evidence: Evidence) -> Verdict:
    """A row for each product's first price, and one for each that changed."""
    first, changed = evidence.asked.stores * evidence.asked.products, evidence.asked.changed
    return Verdict(
        evidence.changes == first + changed,
        f"{evidence.changes} rows of price and stock: {first} first ones and {changed} changes are right",
    )


def one_at_a_time(evidence: Evidence) -> Verdict:
    says = f"{evidence.overlaps} of {evidence.runs} runs overlapped with another one of the same store"
    return Verdict(evidence.overlaps == 0 and evidence.runs > 0, says)


def nothing_lost(evidence: Evidence) -> Verdict:
    done = [evidence.tasks.get((role, "completed"), 0) for role in PER_STORE]
    left = sum(count for (_, state), count in evidence.tasks.items() if state != "completed")
    says = f"{left} tasks are lost or failed; of each store's steps {', '.join(map(str, done))} are completed"
    return Verdict(left == 0 and min(done) >= evidence.asked.stores, says)


def nothing_doubled(evidence: Evidence) -> Verdict:
    asked = evidence.asked
    holds = (asked.planned, asked.planned_again, asked.run_now_was_new) == (asked.stores, 0, False)
    new = "a second" if asked.run_now_was_new else "the same"
    return Verdict(
        holds, f"{asked.planned} resyncs planned, {asked.planned_again} by a second call; run_now returned {new} task"
    )


def analytics_agree(evidence: Evidence) -> Verdict:
    says = f"the analytics count {evidence.analysed} products, the menus {evidence.menu}"
    return Verdict(evidence.analysed == evidence.menu, says)


def proxies_take_turns(evidence: Evidence) -> Verdict:
    visits = evidence.visits
    says = f"{visits.by.total()} visits by {len(visits.by)} proxies, {visits.held} of them not given back"
    return Verdict(len(visits.by) > 1 and visits.held == 0, says)


def visitors_are_strangers(evidence: Evidence) -> Verdict:
    visits = evidence.visits
    says = f"{visits.at_once} visits were at one time by the same proxy, {visits.known} known from an earlier one"
    return Verdict(visits.at_once == visits.known == 0, says)


def the_leak_is_found(evidence: Evidence) -> Verdict:
    own = evidence.visits.by.get(OWN, 0)
    found = "rests" if evidence.visits.leak_found else "does not rest"
    says = f"the proxy that leaks {found}; {own} visits showed the worker's own address"
    return Verdict(evidence.visits.leak_found and own == 0, says)
