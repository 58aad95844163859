"""The container image of what is committed, made and tried: `make image`.

    python deploy/image.py [NAME=VALUE ...]     the Dockerfile's build arguments: BASE, CHROMIUM, EXTRAS

Built twice with buildah, which needs no daemon, it is the same image, byte for byte: its files have the commit's time.
It is kept as celeriac:<version>, and what is in it is listed in `dist/` (CycloneDX). The programs that services are
started with run in it, as its user.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from release import Wrong, committed, run, say

from celeriac.version import __version__

NAME = f"celeriac:{__version__}"

#: What has to start in it: the engine's commands, and the application with all that it imports.
STARTS = (
    ("celeriac", "--version"),
    ("celery", "-A", "tasks", "report"),
    ("celery", "-A", "tasks", "celeriac", "--help"),
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="celeriac-image-") as name:
        tree = Path(name) / "tree"
        at = committed(tree)
        first, again = (build(tree, at, sys.argv[1:]) for _ in range(2))
    if first != again:
        raise Wrong(f"{NAME} differs each time it is built: {first}, {again}")
    say("two builds are the same, byte for byte")
    try_out()
    say(f"{NAME} {first}")


def build(tree: Path, at: str, arguments: list[str]) -> str:
    """What names it: the hash of its configuration, which has those of its layers."""
    file = tree.parent / "id"
    given = [word for one in arguments for word in ("--build-arg", one)]
    run(
        "buildah", "build", "--no-cache", "--timestamp", at, "--build-arg", f"SOURCE_DATE_EPOCH={at}", *given,
        "--file", tree / "deploy" / "Dockerfile", "--ignorefile", tree / "deploy" / "Dockerfile.dockerignore",
        "--iidfile", file, "--tag", NAME, tree,
    )  # fmt: skip
    return file.read_text().strip()


def try_out() -> None:
    container = run("buildah", "from", NAME).strip().splitlines()[-1]
    try:
        for command in STARTS:
            run("buildah", "run", container, "--", *command)
            say(f"{' '.join(command)}: starts")
        list_contents(container)
    finally:
        run("buildah", "rm", container)


def list_contents(container: str) -> None:
    """What is in it, Debian's packages as well, in `dist/`."""
    here = Path(__file__).parent
    mounted = f"{here / 'contents.py'}:/contents.py:ro"
    listed = run("buildah", "run", "--volume", mounted, container, "--", "python", "/contents.py", __version__)
    file = here.parent / "dist" / f"celeriac-{__version__}.image.cdx.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(listed)
    say(f"{file.name} lists {len(json.loads(listed)['components'])} components")


if __name__ == "__main__":
    if shutil.which("buildah") is None:
        sys.exit("make image builds with buildah: install Debian's package of that name")
    try:
        main()
    except Wrong as wrong:
        sys.exit(str(wrong))
