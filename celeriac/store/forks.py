"""Call functions in each forked child, to renew what it must not share with its parent."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol


class HasDescriptor(Protocol):
    """A connection or a server with a descriptor of its own."""

    def fileno(self) -> int: ...


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


def let_go(inherited: Iterable[HasDescriptor]) -> None:
    """Give up, in a forked child, its copies of its parent's sockets.

    In their place the child has a socket whose other end is closed: what it does to an inherited connection is an error
    here and reaches nobody. A copy that stays open would also keep the parent's session alive at the server, with all
    its locks, for as long as a child outlives its parent.
    """
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        for one in inherited:
            with suppress(Exception):  # closed, or broken in a way of its driver's own
                if (descriptor := one.fileno()) >= 0:
                    os.dup2(ours.fileno(), descriptor, inheritable=False)
