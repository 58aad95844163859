"""`python -m tests.planted [--rows] [--sample N] [NAME…]`: plants defects in a copy of the tree, and runs their tests.

The tests have to pass in a clean copy first. Prints for each defect whether it was caught, and by which line. Exits
with 1 unless all were.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from queue import SimpleQueue

from tests.planted import DEFECTS, drawn, taken_away
from tests.planted.defect import Defect
from tests.processes import ROOT

#: Seconds for a test. A defect may keep a test waiting until its own patience ends.
PATIENCE = 300

CAUGHT, NOT_CAUGHT = "caught", "NOT CAUGHT"

#: What pytest prints of a test that noticed nothing, as it did not come to its assertions.
NOT_RUN = re.compile(r"^_+ ERROR (at setup of|collecting) |from pytest-timeout", re.MULTILINE)
AT_SETUP = re.compile(r"^_+ ERROR at setup of ", re.MULTILINE)

Copies = SimpleQueue[Path]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of a defect's name or file; all, if none")
    parser.add_argument("--rows", action="store_true", help="show the drawn rows and what takes each away; plant none")
    parser.add_argument("--sample", type=int, metavar="N", help="so many, drawn by the date")
    parser.add_argument("--at-once", type=int, metavar="N", default=2, help="copies of the tree; 2 by default")
    asked = parser.parse_args(arguments)
    if asked.rows:
        show_rows()
        return 0
    defects = chosen(asked.names)
    if asked.sample:
        defects = sample(defects, asked.sample, datetime.now(UTC).date())
    with copies(asked.at_once) as free:
        if why := fails_clean(defects, free, asked.at_once):
            print(f"without any defect: {why}")
            return 1
        verdicts = list(judged(defects, free, asked.at_once))
    missed = sum(verdict != CAUGHT for verdict in verdicts)
    print(f"{len(verdicts) - missed} of {len(verdicts)} caught")
    return int(missed > 0 or not verdicts)


def show_rows() -> None:
    away = taken_away()
    rows = drawn()
    for document, thing in rows:
        names = ", ".join(defect.name for defect in away.get((document, thing), ()))
        print(f"{document} | {thing} | {names or 'NOTHING'}")
    print(f"{sum(row in away for row in rows)} of {len(rows)} are taken away")


def chosen(names: Sequence[str]) -> list[Defect]:
    return [d for d in DEFECTS if not names or any(name in f"{d.name} {d.file} {d.test}" for name in names)]


def sample(defects: Sequence[Defect], size: int, day: date) -> list[Defect]:
    return random.Random(day.toordinal()).sample(defects, min(size, len(defects)))


def fails_clean(defects: Sequence[Defect], free: Copies, at_once: int) -> str:
    """Run their tests in a copy without a defect; return why they do not pass: what fails there catches nothing."""
    tests = sorted({defect.test for defect in defects if not defect.wrong(ROOT)})
    if not tests:
        return ""
    copy = free.get()
    verdict, why = run(tests, copy, "-n", str(at_once))
    free.put(copy)
    return "" if verdict == NOT_CAUGHT else why


def judged(defects: Sequence[Defect], free: Copies, at_once: int) -> Iterator[str]:
    """Yield a verdict for each, and print it with the reason that its test gave."""
    with ThreadPoolExecutor(at_once) as threads:
        for defect, (verdict, line) in zip(defects, threads.map(lambda one: judge(one, free), defects), strict=True):
            print(f"{verdict:12} {defect.name}  ({defect.test.rpartition('::')[2]})  {line}", flush=True)
            yield verdict


@contextmanager
def copies(number: int) -> Iterator[Copies]:
    """Yield copies of what is tracked, each with the changes that the tree has."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    free: Copies = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="planted") as folder:
        for n in range(number):
            for name in filter(None, tracked.split("\0")):
                if (ROOT / name).exists():
                    target = Path(folder, str(n), name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, target)
            free.put(Path(folder, str(n)))
        yield free


def judge(defect: Defect, free: Copies) -> tuple[str, str]:
    """Plant it in a copy, run its test there, and put the copy right again."""
    if wrong := defect.wrong(ROOT):
        return "NOT THERE", "; ".join(wrong)
    copy = free.get()
    try:
        (copy / defect.file).write_text(defect.planted(copy))
        return run([defect.test], copy, at_setup=defect.at_setup)
    finally:
        shutil.copy2(ROOT / defect.file, copy / defect.file)
        free.put(copy)


def run(tests: Sequence[str], copy: Path, *options: str, at_setup: str = "") -> tuple[str, str]:
    """Run tests in a copy; return whether one failed, and the first line that says why.

    `at_setup`: a part of the error with which their set-up is to fail.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=short", *options, *tests]
    patience = PATIENCE * len(tests)
    environ = {name: value for name, value in os.environ.items() if name != "CI"} | {"PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environ, timeout=patience, check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "NO END", f"after {patience} s"
    errors = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E ")]
    meant = [line for line in errors if at_setup in line] if at_setup and AT_SETUP.search(done.stdout) else []
    if done.returncode == 1 and errors and not NOT_RUN.search(done.stdout):
        return CAUGHT, errors[0][:120]
    if done.returncode == 1 and meant:
        return CAUGHT, f"at setup: {meant[0]}"[:120]
    return NOT_CAUGHT if done.returncode == 0 else "NOT RUN", "\n".join(done.stdout.splitlines()[-3:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
