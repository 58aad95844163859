"""Call functions in each forked child, to renew what it must not share with its parent."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

#: Number of forks in this process's line of parents. A comparison with an earlier copy shows, without a system call,
#: whether this is still the process that made the copy.
generation = 0

#: Functions that are called in each forked child before the registered methods.
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
