"""File descriptors: how many a process may have, and whether hardly any is left."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress

#: Descriptors that have to be left for a task, and for the process to report and end: this share of those that its
#: tasks can have, and at most so many.
SHARE, MOST = 1 / 8, 64

#: Number of descriptors that this process had before its first task: its own connections, and a parent's pipes to its
#: children.
_own = 0


def allow(needed: int) -> tuple[int, int] | None:
    """Raise the soft limit to what is needed, as far as the hard one allows; return both if it was too low. It is
    raised no further: `select()` takes no descriptor above 1,023, and programs that a handler starts inherit the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    if soft == resource.RLIM_INFINITY or soft >= enough:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
    except (OSError, ValueError):  # a kernel whose own limit is lower
        return None
    return soft, enough


def note_own() -> None:
    """Note how many descriptors this process has before it runs tasks: only the others can be used up."""
    global _own
    with suppress(OSError):
        os.close(_own := os.dup(0))


def limit() -> int | None:
    """Return how many this process may have; None: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def has_few() -> bool:
    """Return whether few are left. The kernel gives out the lowest free one, so one look tells, in a microsecond."""
    try:
        os.close(lowest := os.dup(0))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most != resource.RLIM_INFINITY and lowest >= most - min(MOST, int(max(most - _own, 0) * SHARE))
