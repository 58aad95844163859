"""Quote names in commands that people copy, so that a shell takes each as one word. Pure."""

from __future__ import annotations

import shlex


def word(name: str) -> str:
    """Return the name as an option's value."""
    return shlex.quote(name)


def argument(name: str) -> str:
    """Return the name as an argument after all options, so that one with a leading dash is not taken for an option."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)
