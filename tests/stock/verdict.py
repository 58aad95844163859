"""Two columns compared, and what is known to differ; pure."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.stock.columns import Outcomes

KNOWN = Path(__file__).with_name("known.toml")


@dataclass(frozen=True)
class Known:
    """Why a test differs, and whether it does so each time."""

    why: str
    always: bool = True


def known(path: Path = KNOWN) -> dict[str, Known]:
    """By test."""
    found: dict[str, Known] = {}
    for entry in tomllib.loads(path.read_text())["differs"]:
        found |= dict.fromkeys(entry["tests"], Known(entry["why"], entry.get("always", True)))
    return found


@dataclass(frozen=True)
class Verdict:
    """`known` tests that were not run are not judged."""

    plain: Outcomes
    ours: Outcomes
    known: Mapping[str, Known]

    @property
    def differing(self) -> list[str]:
        """What passes on plain Celery and not here."""
        return [test for test, outcome in self.plain.items() if outcome == "passed" and not self.passes(test)]

    @property
    def unexplained(self) -> list[str]:
        return [test for test in self.differing if test not in self.known]

    @property
    def outdated(self) -> list[str]:
        """What is written down to differ, and passes."""
        return [test for test, known in self.known.items() if known.always and self.passes(test)]

    @property
    def is_good(self) -> bool:
        return not self.unexplained and not self.outdated

    def passes(self, test: str) -> bool:
        return self.ours.get(test) == "passed"

    def lines(self) -> Iterator[str]:
        yield f"{'':28}{'tests':>8}{'plain Celery':>16}{'Celeriac':>12}"
        counts = [per_file(tests) for tests in (self.plain, passed(self.plain), passed(self.ours))]
        for file in counts[0]:
            yield f"{file:28}{counts[0][file]:8}{counts[1][file]:16}{counts[2][file]:12}"
        yield f"{'':28}{counts[0].total():8}{counts[1].total():16}{counts[2].total():12}"
        yield from listed("Passes on plain Celery alone, and is known to:", self.explained())
        yield from listed("Passes on plain Celery alone:", self.unexplained)
        yield from listed("Passes, and is written down not to:", self.outdated)

    def explained(self) -> Iterator[str]:
        return (f"{test}: {self.known[test].why}" for test in self.differing if test in self.known)


def passed(outcomes: Outcomes) -> list[str]:
    return [test for test, outcome in outcomes.items() if outcome == "passed"]


def per_file(tests: Iterable[str]) -> Counter[str]:
    return Counter(test.partition("::")[0] for test in tests)


def listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"\n{title}"
        yield from (f"  {line}" for line in found)
