"""Notice a process that has nearly used up its file descriptors: what begins there fails, whatever it opens.

Such a process runs nothing more, and another takes its place (`run.watch`, `worker.governor`).
"""

from __future__ import annotations

import errno
import os
import resource

#: How many have to be left for a task, and for a process to report and to end: a share of the limit, at most so many.
SHARE, MOST = 1 / 8, 64

#: After a handler that was over within this time (seconds) nobody looks: it has opened a few files at most.
BRIEF = 50e-6


def are_short() -> bool:
    """Return whether few are left. The kernel gives out the lowest free one, so one look tells, in a microsecond."""
    try:
        lowest = os.dup(0)
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    os.close(lowest)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and lowest >= limit - min(MOST, int(limit * SHARE))
