"""`make nightly`: what takes its time, each part to its end, with the commit it was run at."""

from __future__ import annotations

import subprocess
import sys

from tests.matrix import SHORT
from tests.parts import Part, python, run
from tests.processes import ROOT

#: How many examples of each property.
EXAMPLES = 2_000

CONTRACT = "tests/faults/test_api_contract.py"

#: How many planted defects, of all that `python -m tests.planted` has: others each night.
PLANTED = "12"

#: All that may be installed, by what is known of it; of what nothing is known is no success.
AUDITED = ("--strict", "--no-deps", "--disable-pip", "--requirement", "constraints.txt")

PARTS = (
    Part("tests by night", python("pytest", "-n", "3", "--nightly")),
    Part("properties", python("pytest", "-n", "2", "-m", "hypothesis", "tests"), {"EXAMPLES": str(EXAMPLES)}),
    Part("calls drawn from the API's document", python("pytest", "-n", "2", "--full", CONTRACT)),
    Part("planted defects", python("tests.planted", "--sample", PLANTED)),
    Part("known vulnerabilities", python("pip_audit", *AUDITED)),
    Part("the short matrix", python("tests.matrix", *SHORT)),
    Part("other releases of packages", python("tests.matrix.packages")),
    Part("packages around Celery", python("tests.matrix.around")),
    Part("a failover by Patroni", python("tests.matrix.patroni")),
    Part("Django's newer releases", python("tests.matrix.django")),
)


def main() -> int:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    status = run(PARTS)
    print(f"at {commit.strip() or 'no commit'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
