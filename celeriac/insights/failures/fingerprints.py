"""The fingerprint by which failures are grouped.

Two failures are of one kind if they have the same role, type of exception, message without what differs from task to
task (numbers, ids, quoted texts), and innermost own frame. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from celeriac.store.messages import pattern_of

_TYPE = re.compile(r"([A-Za-z_][\w.]*): ")
_FRAME = re.compile(r'^  File "([^"]+)", line \d+, in (.+)$', re.MULTILINE)

#: Files that are not the user's own: those of the engine, of installed packages, of Python.
_OTHERS = (f"{Path(__file__).parents[1]}/", "/site-packages/", "/dist-packages/", "/lib/python", "<")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure. `frame`: "file:function". `fingerprint`: a digest of the role and all of these."""

    type: str | None
    pattern: str
    frame: str | None
    fingerprint: str


def kind_of(role: str, message: str, traceback: str | None) -> Kind:
    """Return the kind of a failure: what it has in common with others like it."""
    said = _TYPE.match(message)
    kind = said and said[1]
    pattern, frame = pattern_of(message), own_frame(traceback)
    same = "\n".join((role, kind or "", pattern, frame or ""))
    return Kind(kind, pattern, frame, sha256(same.encode()).hexdigest()[:12])


def own_frame(traceback: str | None) -> str | None:
    """Return the innermost frame of the user's own code as "file:function", without its line, which changes."""
    frames = _FRAME.findall(traceback or "")
    own = [(file, function) for file, function in frames if not any(other in file for other in _OTHERS)]
    return f"{own[-1][0].rpartition('/')[2]}:{own[-1][1]}" if own else None
