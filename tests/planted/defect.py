"""A planted defect: a text of the project, what stands in its place, and the test that has to fail then."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.documents import tests_of


class Defect(NamedTuple):
    """`name` says what is broken. `text` occurs once in `file`. `rows`: of docs/documents.md, by what they name.

    `at_setup`: where the test's set-up is to fail, a part of what its error says. Without it, and for any other error
    there, the test did not run, and has noticed nothing.
    """

    name: str
    file: str
    text: str
    instead: str
    test: str
    rows: tuple[str, ...] = ()
    at_setup: str = ""

    def wrong(self, root: Path) -> list[str]:
        """Return why it cannot be planted in this tree."""
        path = root / self.file
        times = path.read_text().count(self.text) if path.exists() else 0
        file, _, test = self.test.partition("::")
        wrong = [] if times == 1 else [f"its text occurs {times} times in {self.file}"]
        return wrong + ([] if test.partition("[")[0] in tests_of(file) else [f"there is no {self.test}"])

    def planted(self, root: Path) -> str:
        """Return the file's text with the defect."""
        return (root / self.file).read_text().replace(self.text, self.instead)
