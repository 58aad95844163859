"""A process that a greenlet forks has that greenlet, and none of the others, on each of gevent's loops."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processes import ROOT

ENDED = {
    "returns": 0, "releases": 0, "exits": 7, "breaks": 1, "blocks": 1, "spawns": 5, "is_idle": 0, "times_out": 11,
    "runs_another": 3,
}  # fmt: skip


def test_a_child_has_only_the_greenlet_that_forked_it() -> None:
    children_of("libev-cext")


@pytest.mark.nightly("gevent's own default is tried by day")
@pytest.mark.parametrize("loop", ["libev-cffi", "libuv-cffi"])
def test_a_child_has_only_the_greenlet_that_forked_it_on_other_loops(loop: str) -> None:
    children_of(loop)


def children_of(loop: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.pure.forked_greenlets"], cwd=ROOT, env=os.environ | {"GEVENT_LOOP": loop},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.stdout.splitlines() == [*(f"{name} {status}" for name, status in ENDED.items()), "end"], ran.stderr
