"""The container image of what is committed, made and tried: `make image`.

    python deploy/image.py [NAME=VALUE ...]     the Dockerfile's build arguments: BASE, CHROMIUM, EXTRAS

Built twice with buildah, which needs no daemon, it is the same image, byte for byte: its files have the commit's time,
and its base is the digest that the tag has when the first begins. It is kept as celeriac:<version>, and what is in it
is listed in `dist/` (CycloneDX), the base by its digest. The programs that services are started with run in it, as its
user.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
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
        arguments, base = by_digest(tree / "deploy" / "Dockerfile", sys.argv[1:])
        say(f"the base is {base}")
        first, again = (build(tree, at, arguments) for _ in range(2))
    if first != again:
        raise Wrong(f"{NAME} differs each time it is built: {first}, {again}")
    say("two builds are the same, byte for byte")
    try_out(base)
    say(f"{NAME} {first}")


def by_digest(dockerfile: Path, arguments: Sequence[str]) -> tuple[list[str], str]:
    """Return the build arguments with the base by its digest, as its registry has it now, and that base."""
    (usual,) = re.findall(r"^ARG BASE=(\S+)$", dockerfile.read_text(), re.MULTILINE)
    others = [one for one in arguments if not one.startswith("BASE=")]
    base = next((one.removeprefix("BASE=") for one in reversed(arguments) if one.startswith("BASE=")), usual)
    if "@" not in base:
        run("buildah", "pull", "--policy", "always", base)
        digest = run("buildah", "images", "--format", "{{.Digest}}", base).split()[0]
        base = f"{re.sub(':[^:/]+$', '', base)}@{digest}"
    if re.search("@sha256:[0-9a-f]{64}$", base) is None:
        raise Wrong(f"BASE={base} names no digest (NAME@sha256:…)")
    return [*others, f"BASE={base}"], base


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


def try_out(base: str) -> None:
    container = run("buildah", "from", NAME).strip().splitlines()[-1]
    try:
        for command in STARTS:
            run("buildah", "run", container, "--", *command)
            say(f"{' '.join(command)}: starts")
        list_contents(container, base)
    finally:
        run("buildah", "rm", container)


def list_contents(container: str, base: str) -> None:
    """What is in it, its base and Debian's packages as well, in `dist/`."""
    here = Path(__file__).parent
    mounted = f"{here / 'contents.py'}:/contents.py:ro"
    listed = run("buildah", "run", "--volume", mounted, container, "--", "python", "/contents.py", __version__, base)
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
