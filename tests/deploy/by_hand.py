"""Commands that no test runs, each with the reason; what can be known of them without is looked at."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

import yaml

from tests.deploy import compose
from tests.deploy.finishing import finish
from tests.deploy.test_kubernetes import base
from tests.processes import ROOT

#: The command, and why it is not run here.
BY_HAND = {
    "make nightly": "the tests of this list among others; most of an hour",
    "make again": "the gate itself, in part: what failed in it",
    "make quick": "the gate itself, in part: its lint, and tests that run beside this one",
    "make check": "the gate itself: .ci/run begins with it",
    "make coverage T=tests/postgres": "tests once more, slower",
    "python -m tests.map": "writes a page that tests/pure compares with the code",
    "python -m tests.operations": "writes a page that tests/postgres compares with the code",
    "python -m tests.api.scopes": "writes a page that tests/api compares with the code",
    "make format": "changes the working tree",
    "make screenshots": "for the eye: minutes with a Chromium",
    "make celery-suites": "half an hour, and a download",
    "make celery-suites T=test_inspect.py": "minutes, and a download",
    "make dist": "of what is committed; installs the wheel",
    "make image": "wants buildah and a base image; minutes",
    "make image B=CHROMIUM=chromium": "the same, with a browser",
    "make matrix": "wants servers and Pythons that are installed; an hour",
    "make pgbouncer": "wants a PgBouncer that is installed",
    "python -m tests.matrix.connections": "wants a PgBouncer that is installed",
    "python -m tests.matrix.patroni": "wants a Patroni that is installed; minutes",
    "python -m tests.matrix.patroni 10": "the same, for longer",
    "python -m tests.matrix.django": "wants Python 3.12 or later, and a download; by night",
    "python -m tests.matrix.around": "makes an environment, which is a download; by night",
    "python -m tests.matrix.packages": "makes environments, which are downloads; by night",
    "python -m tests.private": "what tests/pure/test_private.py asks of the installed releases",
    "python -m tests.planted": "runs tests in copies of the tree, for most of an hour; some by night",
    "python -m tests.matrix.mixed": "wants the last release's tag; minutes",
    "python -m tests.matrix.mixed HEAD~20": "wants the history; minutes",
    "pre-commit install": "changes the repository's hooks",
    "kubectl delete job migrate": "wants a cluster",
    "docker compose config --resolve-image-digests": "wants docker, and asks registries",
}


def wrong_with(command: str, environ: Mapping[str, str]) -> list[str]:
    """What of it is not there."""
    program, *arguments = shlex.split(command)
    match program, arguments:
        case "make", [target, *given]:
            return _of_make(target, given, environ)
        case "python", ["-m", module, *_]:
            return [] if find_spec(module) else [f"{command}: there is no module {module}"]
        case "pre-commit", ["install"]:
            hooks = [hook for one in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
                     for hook in one["hooks"]]  # fmt: skip
            return [] if hooks else [f"{command}: there are no hooks"]
        case "kubectl", ["delete", kind, name]:
            found = {(one["kind"].lower(), one["metadata"]["name"]) for one in base()}
            return [] if (kind, name) in found else [f"{command}: there is no {kind} {name}"]
        case "docker", ["compose", "config", "--resolve-image-digests"]:
            services = compose.read()["services"].values()
            return [] if any("image" in one for one in services) else [f"{command}: no service has an image"]
    return [f"{command}: nobody knows how to look at it"]


def _of_make(target: str, given: list[str], environ: Mapping[str, str]) -> list[str]:
    """Whether make has the target, what its recipe starts, and the tests it is given."""
    if not re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE):
        return [f"make {target}: there is no such target"]
    done = finish(f"make --dry-run {target} {shlex.join(given)}", environ)
    if done.returncode:
        return [done.stdout]
    places = [value for name, _, value in (one.partition("=") for one in given) if name == "T" and "/" in value]
    places += re.findall(r"(?<=\s)\w+/[\w/]+\.py\b", done.stdout)
    modules = re.findall(r"(?<= -m )[\w.]+", done.stdout)
    return [f"make {target}: {missing} is not there" for missing in (*_no_places(places), *_no_modules(modules))]


def _no_places(places: list[str]) -> Iterator[str]:
    yield from (place for place in places if not (ROOT / place).exists())


def _no_modules(modules: list[str]) -> Iterator[str]:
    yield from (module for module in modules if not find_spec(module))
