"""`make quick`: lint, types, import contracts and the tests that need no server, side by side."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.parts import Part, python, run

BESIDE = Path(sys.executable).parent

#: Number of examples of each property, of a hundred in `make test`.
EXAMPLES = 20

PARTS = (
    Part("pure tests", python("pytest", "-n", "2", "tests/pure"), {"EXAMPLES": str(EXAMPLES)}),
    Part("lint", [str(BESIDE / "ruff"), "check", "."]),
    Part("format", [str(BESIDE / "ruff"), "format", "--check", "."]),
    Part("types", [str(BESIDE / "mypy")]),
    Part("import contracts", [str(BESIDE / "lint-imports")]),
)

if __name__ == "__main__":
    sys.exit(run(PARTS, at_once=len(PARTS)))
