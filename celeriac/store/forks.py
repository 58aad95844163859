"""Make things anew in each forked child."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

#: Counts forks, in the child: whoever keeps a copy of it can tell without a system call whether it is still in the
#: process that made the copy.
generation = 0

#: Called in each forked child before anything is made anew.
first: list[Callable[[], None]] = []


def _count() -> None:
    global generation
    generation += 1
    for call in first:
        call()


os.register_at_fork(after_in_child=_count)


def after_fork(method: Callable[[], None]) -> None:
    """Call the method in each forked child as long as its owner lives;
    this registration does not keep the owner alive.
    """
    weak = weakref.WeakMethod(method)

    def call() -> None:
        if (living := weak()) is not None:
            living()

    os.register_at_fork(after_in_child=call)
