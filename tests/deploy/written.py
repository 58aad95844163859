"""The commands of README.md and the pages in docs: lines of blocks, and what stands in backticks in the text."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from tests.processes import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: Any of them may come with a path. Alone on a line of a block it is a command; within the text it takes an argument.
PROGRAMS = (
    "celeriac|celery|make|docker|python3?|pip3?|pytest|curl|psql|redis-cli|apt(?:-get)?|git|npm|kubectl|helm|sh|bash"
)
PROGRAM = rf"(?:[A-Z_]+=\S+ )*(?:\S*/)?(?:{PROGRAMS})"

BLOCK = re.compile(rf"^(?:    |\$ )({PROGRAM}(?: .*)?)$", re.MULTILINE)
SHELL = re.compile(r"^```(?:console|sh|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```(?!console|sh\b|bash)\w+\n.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(rf"`({PROGRAM}\s[^`]+)`")

#: What runs until it is stopped, and what it prints once it is up.
LASTING = {
    "-A tasks worker": "[queues]",
    "-A tasks beat": "schedules -> scheduled_jobs",
    "-A tasks flower": "Visit me at",
    "celeriac serve": "Uvicorn running",
    "status --watch": "workers,",
    "-m sandbox": "DUDA_BASE_URL",
    "celeriac up": " ready.",
    "make up": " ready.",
}


def commands(text: str) -> list[str]:
    """A page's commands in order, without what is said of them."""
    text = CODE.sub("", re.sub(r"\\\n\s*", "", text))
    text = SHELL.sub(lambda block: re.sub(r"^(?!\$ )", "    ", block[1], flags=re.MULTILINE), text)
    found = sorted((match.start(), match[1]) for pattern in (BLOCK, INLINE) for match in pattern.finditer(text))
    return [re.sub(r"\s+#.*", "", command).replace("\n", " ").strip() for _, command in found]


def lasting(command: str) -> str | None:
    """What it prints once it is up, if it lasts."""
    words = " ".join(shlex.split(command))
    return next((up for part, up in LASTING.items() if re.search(rf"{part}\b", words)), None)


def names(group: Any, before: str = "") -> set[str]:
    """Of all commands below a group."""
    found = {f"{before}{name}": command for name, command in group.commands.items()}
    return {n for name, c in found.items() for n in (names(c, f"{name} ") if hasattr(c, "commands") else {name})}


WRITTEN: dict[Path, list[str]] = {page: commands(page.read_text()) for page in PAGES}
EVERY = {command for found in WRITTEN.values() for command in found}

#: Run by tests/api/test_api_page.py against a running server.
ASKING = sorted(command for command in EVERY if command.startswith("curl "))
