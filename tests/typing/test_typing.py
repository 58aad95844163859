"""`.delay()` is typed from its handler: mypy and pyright accept the good file and refuse each planted mistake."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
GOOD, BAD = "tests/typing/good.py", "tests/typing/bad.py"
CHECKERS = {
    "mypy": ["mypy", "--strict", "--follow-imports=silent"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}


def refused(checker: str) -> dict[str, set[int]]:
    """The lines with an error, per file."""
    command = [sys.executable, "-m", *CHECKERS[checker], GOOD, BAD]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    lines: dict[str, set[int]] = {GOOD: set(), BAD: set()}
    for file, line in re.findall(r"(tests/typing/\w+\.py):(\d+)(?::\d+)?(?: -|:) error", ended.stdout):
        lines[file].add(int(line))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return lines


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_good_is_accepted_and_each_planted_mistake_refused(checker: str) -> None:
    marked = {n for n, line in enumerate((ROOT / BAD).read_text().splitlines(), 1) if line.endswith("# wrong")}
    assert refused(checker) == {GOOD: set(), BAD: marked}
