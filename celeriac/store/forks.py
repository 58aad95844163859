"""Forks: what a process makes anew in each child."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

#: How often this process was forked from another, counted in the child: what keeps it can tell whether it is still in
#: the process that made it, without a system call.
generation = 0


def _count() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_count)


def after_fork(method: Callable[[], None]) -> None:
    """Calls it in each forked child as long as its owner lives: what is registered for ever keeps nobody alive."""
    weak = weakref.WeakMethod(method)

    def call() -> None:
        if (living := weak()) is not None:
            living()

    os.register_at_fork(after_in_child=call)
