"""What the pages have: their blocks, and their commands, in lines of blocks and in backticks in the text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.processes import ROOT

PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]  # fmt: skip

#: Any of them may come with a path. Alone on a line of a block it is a command; within the text it takes an argument.
PROGRAMS = (
    "celeriac|celery|make|docker|python3?|pip3?|pytest|curl|psql|redis-cli|apt(?:-get)?|git|npm|kubectl|helm|sh|bash|"
    "pre-commit"
)
PROGRAM = rf"(?:[A-Z_]+=\S+ )*(?:\S*/)?(?:{PROGRAMS})"

BLOCK = re.compile(rf"^(?:    |\$ )({PROGRAM}(?: .*)?)$", re.MULTILINE)
SHELL = re.compile(r"^```(?:console|sh|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```(?!console|sh\b|bash)\w+\n.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(rf"`({PROGRAM}\s[^`]+)`")

FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: The language of a block that has no fence.
INDENTED = "indented"

#: What runs until it is stopped, and what it prints once it is up.
LASTING = {
    "-A tasks worker": "[queues]",
    "-A tasks beat": "schedules -> scheduled_jobs",
    "-A tasks flower": "Visit me at",
    "deploy/start_flower.py": "Visit me at",
    "celeriac serve": "Uvicorn running",
    "status --watch": "workers,",
    "-m sandbox": "DUDA_BASE_URL",
    "-m tasks.renderer": "pages are opened at",
    "celeriac up": " ready.",
    "make up": " ready.",
}


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line} ({self.language or 'no language'})"

    @property
    def commands(self) -> list[str]:
        """Of a block of a shell."""
        return commands(self.text if self.language == INDENTED else f"```console\n{self.text}```")


def blocks(page: Path, text: str) -> list[Block]:
    """In order: what stands between fences, and what is indented by four."""
    fenced = [Block(page, _line(text, found.start()), found[1], found[2]) for found in FENCE.finditer(text)]
    rest = FENCE.sub(lambda found: "\n" * found[0].count("\n") + "fenced", text)
    return sorted((*fenced, *_indented(page, rest)), key=lambda block: block.line)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _indented(page: Path, text: str) -> Iterator[Block]:
    """A paragraph that is indented goes on with a list where one is open."""
    in_list, after_blank = False, True
    for found in re.finditer(r"^ {4}.*\n(?:(?: {4}.*)?\n)*|^.*\n?", text, re.MULTILINE):
        line = found[0]
        if line.startswith("    "):
            if after_blank and not in_list:
                yield Block(page, _line(text, found.start()), INDENTED, line)
        elif line.strip():
            in_list = bool(re.match(r"(?:[-*]|\d+\.) ", line)) or (in_list and not after_blank)
        after_blank = line.endswith("\n\n") or not line.strip()


def commands(text: str) -> list[str]:
    """A page's commands in order, without what is said of them."""
    text = CODE.sub("", re.sub(r"\\\n\s*", "", text))
    text = SHELL.sub(lambda block: re.sub(r"^(?!\$ )", "    ", block[1], flags=re.MULTILINE), text)
    found = sorted((match.start(), match[1]) for pattern in (BLOCK, INLINE) for match in pattern.finditer(text))
    return [re.sub(r"\s+#.*", "", command).replace("\n", " ").strip() for _, command in found]


def lasting(command: str) -> str | None:
    """What it prints once it is up, if it lasts."""
    words = " ".join(shlex.split(command))
    return next((up for part, up in LASTING.items() if re.search(rf"{part}(?! --openapi)\b", words)), None)


def names(group: Any, before: str = "") -> set[str]:
    """Of all commands below a group."""
    found = {f"{before}{name}": command for name, command in group.commands.items()}
    return {n for name, c in found.items() for n in (names(c, f"{name} ") if hasattr(c, "commands") else {name})}


BLOCKS: list[Block] = [block for page in PAGES for block in blocks(page, page.read_text())]


def of(page: str, *languages: str) -> list[Block]:
    """A page's blocks of these languages; the page by its path in the repository."""
    return [block for block in BLOCKS if block.page == ROOT / page and block.language in languages]


WRITTEN: dict[Path, list[str]] = {page: commands(page.read_text()) for page in PAGES}
EVERY = {command for found in WRITTEN.values() for command in found}

#: Run by tests/api/test_api_page.py against a running server.
ASKING = sorted(command for command in EVERY if command.startswith("curl "))
