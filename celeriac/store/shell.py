"""Names of others in commands that people copy: a shell takes each as one word. Pure."""

from __future__ import annotations

import shlex


def word(name: str) -> str:
    """Return the value of an option."""
    return shlex.quote(name)


def argument(name: str) -> str:
    """Return an argument, which comes after all options; one that begins with a dash is no option."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)
