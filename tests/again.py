"""`make again`: the tests that failed in the last run, once more, by themselves and one after the other.

A run of thousands beside each other fails by its own load now and then.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from tests.parts import python
from tests.processes import ROOT

#: More failures than these are no accident of a busy machine.
MOST = 20

#: What fails here once in a thousand runs is a race that was found.
NEVER = ("test_races.py",)

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def refusal(failed: Collection[str]) -> str:
    """The reason not to run these once more; empty if there is none."""
    if not failed:
        return "no test failed, so it was something else"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed, more than {MOST}"
    never = sorted(name for name in failed if name.partition("::")[0].endswith(NEVER))
    return f"a race was found: {', '.join(never)}" if never else ""


def main() -> int:
    path = ROOT / LAST_FAILED
    failed = json.loads(path.read_text()) if path.exists() else {}
    if why := refusal(failed):
        print(f"Nothing is run again: {why}.")
        return 1
    print("Once more, by themselves:", *sorted(failed), sep="\n  ", flush=True)
    return subprocess.run(python("pytest", "-n", "0", "--last-failed"), cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
