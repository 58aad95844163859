"""Judges what happened. Pure: evidence in, verdicts out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from demo.thumbnails.plan import CASES, KINDS, Fate
from demo.verdict import Verdict

Size = tuple[int, ...]

#: Attempts a page gets.
ATTEMPTS = 4


@dataclass(frozen=True)
class Site:
    """`sizes` and `digest` are of the files its thumbnails refer to; `attempts` of its latest task."""

    kind: str
    id: int
    case: str
    fate: Fate
    in_progress: bool
    changed: bool = False
    sizes: Mapping[str, Size] | None = None
    digest: str | None = None
    task: str | None = None
    attempts: int = 0


@dataclass(frozen=True)
class Evidence:
    """`reset`: what the stale fixer wrote down; `visits`: pages asked for, each with the cookie it came with; `old`:
    how many pictures of earlier builds there were; `unseen`: files in the end that no site shows.
    """

    sites: Sequence[Site]
    wanted: Mapping[str, Size]
    reset: Mapping[str, int]
    visits: Sequence[tuple[str, str]]
    killed: Sequence[tuple[str, int]]
    old: int
    unseen: Sequence[str]

    def of(self, fate: Fate) -> list[Site]:
        return [site for site in self.sites if site.fate == fate]


def verdicts(evidence: Evidence) -> list[Verdict]:
    """One for each condition; the demo succeeds if all hold."""
    conditions = (
        all_rendered, each_its_own, stuck_were_reset, others_left_alone, broken_wait, contexts_apart,
        killed_was_repeated, old_are_removed,
    )  # fmt: skip
    return [condition(evidence) for condition in conditions]


def all_rendered(evidence: Evidence) -> Verdict:
    meant = evidence.of("rendered")
    done = [site for site in meant if site.sizes == evidence.wanted and not site.in_progress]
    sizes = ", ".join(f"{name} {width}×{height}" for name, (width, height) in evidence.wanted.items())
    return Verdict(
        bool(meant) and len(done) == len(meant), f"{len(done)} of {len(meant)} sites have thumbnails: {sizes}"
    )


def each_its_own(evidence: Evidence) -> Verdict:
    pictures = [site.digest for site in evidence.of("rendered") if site.digest]
    return Verdict(
        bool(pictures) and len(set(pictures)) == len(pictures),
        f"{len(set(pictures))} different pictures of {len(pictures)} sites",
    )


def stuck_were_reset(evidence: Evidence) -> Verdict:
    stuck = sum(case.sites for case in CASES if case.name == "stuck")
    told = " and ".join(f"{n} {table}" for table, n in evidence.reset.items()) or "nothing"
    return Verdict(
        list(evidence.reset.values()) == [stuck] * len(KINDS), f"the stale fixer reset {told}, stuck for 3 hours"
    )


def others_left_alone(evidence: Evidence) -> Verdict:
    meant = evidence.of("left alone")
    left = [site for site in meant if not site.changed and site.task is None]
    says = f"{len(left)} of {len(meant)} drafts, finished and freshly begun sites were left alone"
    return Verdict(bool(meant) and len(left) == len(meant), says)


def broken_wait(evidence: Evidence) -> Verdict:
    meant = evidence.of("failed")
    waits = [s for s in meant if s.task == "failed" and s.attempts == ATTEMPTS and s.in_progress and s.sizes is None]
    says = f"{len(waits)} of {len(meant)} pages that answer 503 failed after {ATTEMPTS} attempts and wait for the fixer"
    return Verdict(bool(meant) and len(waits) == len(meant), says)


def contexts_apart(evidence: Evidence) -> Verdict:
    foreign = list(_foreign(evidence.visits))
    says = f"{len(evidence.visits)} pages were asked for, {len(foreign)} with another site's cookie"
    return Verdict(bool(evidence.visits) and not foreign, says)


def _foreign(visits: Sequence[tuple[str, str]]) -> Iterator[str]:
    return (name for name, cookie in visits if cookie not in ("", f"visited={name}"))


def killed_was_repeated(evidence: Evidence) -> Verdict:
    rendered = {(site.kind, site.id) for site in evidence.of("rendered") if site.sizes}
    again = [site for site in evidence.killed if site in rendered]
    says = f"{len(evidence.killed)} process was killed while it rendered; {len(again)} of its sites was rendered again"
    return Verdict(bool(again) and len(again) == len(evidence.killed), says)


def old_are_removed(evidence: Evidence) -> Verdict:
    says = f"{evidence.old} pictures were replaced, a build was killed midway: {len(evidence.unseen)} files are left"
    return Verdict(evidence.old > 0 and not evidence.unseen, says)
