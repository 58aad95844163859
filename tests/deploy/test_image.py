"""deploy/Dockerfile keeps its word: what is in the image, who runs in it, and what that one may not do."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.jail import HOME, USER, can_be_had, jailed
from tests.deploy.test_compose import FILE, OURS
from tests.processes import ROOT


def test_the_image_is_made_of_what_is_there_by_nobody_special() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    copied = [part for line in lines if line.startswith("COPY ") for part in line.split()[1:-1]]
    ignored_but = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().split()
    assert all((ROOT / part).exists() for part in copied)
    assert {f"!{part}" for part in copied} <= set(ignored_but)
    assert any("pip install --no-compile --no-deps --require-hashes" in line for line in lines)
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == [str(USER)]
    assert f" HOME={HOME}\n" in (ROOT / "deploy" / "Dockerfile").read_text()


def test_nothing_in_the_image_is_of_the_minute_it_was_built_in() -> None:
    """What `make image` found to differ between two builds; it wants a buildah, and is run by hand."""
    steps = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    for step in (step for step in steps if "apt-get install" in step):
        assert re.search(r"rm -rf( /var/(lib/apt/lists/\*|cache/(apt|ldconfig)|log/(apt|\*\.log))){5}", step)
    (installs,) = (step for step in steps if "pip install" in step)
    assert installs.count("pip install") == installs.count("pip install --no-compile --no-deps") == 2
    assert "compileall -q -f --invalidation-mode unchecked-hash" in installs
    assert "ARG SOURCE_DATE_EPOCH" in steps, "useradd and wheel ask it for the time"


def test_the_image_can_keep_thumbnails_where_the_pages_say() -> None:
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = {re.split(r"\W", one)[0] for extra in extras.split(",") for one in optional[extra]}
    assert {"fsspec", "s3fs"} <= installed


def test_the_first_process_is_the_images_own() -> None:
    """It waits for orphans; with another `init` above it, it is no first process, and says so at each start."""
    assert 'ENTRYPOINT ["tini", "--"]' in (ROOT / "deploy" / "Dockerfile").read_text()
    assert [name for name in OURS if {"init", "entrypoint"} & set(FILE["services"][name])] == []


#: Each may be tried in a container; none may succeed.
FORBIDDEN = {
    "touch {root}/tasks/written": "Read-only file system",
    "touch /etc/written": "Read-only file system",
    "touch /usr/bin/written": "Read-only file system",
    "mkdir /written": "Read-only file system",
    "mount -t tmpfs none /tmp": "must be superuser|permission denied",
    "setpriv --reuid 0 id": "Operation not permitted",
    "ls /var/lib": "No such file or directory",
}


@pytest.mark.skipif(not can_be_had(), reason="a jail is for root to make")
@pytest.mark.parametrize("command", FORBIDDEN)
def test_what_a_container_forbids_is_refused_in_the_jail(command: str) -> None:
    given = jailed(shlex.split(command.format(root=ROOT)))
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert re.search(FORBIDDEN[command], done.stderr)


@pytest.mark.skipif(not can_be_had(), reason="a jail is for root to make")
def test_who_is_in_the_jail_has_no_power_and_a_tmp_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "ours").touch()
    alone = f"touch /tmp/written && ! test -e {tmp_path / 'ours'}"
    look = f"{alone} && id -u && grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status"
    done = subprocess.run(jailed(["sh", "-c", look]), capture_output=True, text=True, check=True)
    user, *powers = done.stdout.splitlines()
    assert int(user) == USER
    assert not Path("/tmp/written").exists()
    assert {line.split()[0]: int(line.split()[1], 16) for line in powers} == {
        "CapEff:": 0,
        "CapBnd:": 0,
        "NoNewPrivs:": 1,
    }


def test_every_service_of_ours_is_built_from_that_dockerfile() -> None:
    built = {name for name, service in FILE["services"].items() if "build" in service}
    assert built == set(OURS)
    assert {FILE["services"][name]["build"]["dockerfile"] for name in OURS} == {"deploy/Dockerfile"}


def test_the_installed_engine_is_whole() -> None:
    """The image installs a wheel: a package missing in pyproject.toml would be missing there only."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {path.parent.relative_to(ROOT) for path in (ROOT / "celeriac").rglob("__init__.py")}
    assert sorted(listed) == sorted(str(path).replace("/", ".") for path in there)


def test_what_the_engine_reads_beside_its_modules_is_packed() -> None:
    """Templates, routines, static files: `make dist` compares what is in the wheel with what git knows."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["celeriac"]
    engine = ROOT / "celeriac"
    packed = {name for pattern in data for name in glob.glob(pattern, root_dir=engine)}
    there = {path for path in engine.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert {str(path.relative_to(engine)) for path in there} == packed


@pytest.mark.parametrize(
    ("environ", "starts"),
    [
        ({}, True),
        ({"FLOWER_HOST": "::1", "FLOWER_BASIC_AUTH": "celeriac:celeriac"}, True),
        ({"FLOWER_HOST": "0.0.0.0", "FLOWER_BASIC_AUTH": "ann:secret"}, True),
        ({"FLOWER_HOST": "0.0.0.0", "FLOWER_BASIC_AUTH": "ann:secret,celeriac:celeriac"}, False),
        ({"FLOWER_HOST": "192.0.2.7"}, False),
    ],
)
def test_flower_is_not_published_with_the_password_everybody_knows(
    environ: dict[str, str], starts: bool, tmp_path: Path
) -> None:
    (tmp_path / "celery").write_text("#!/bin/sh\necho started $*\n")
    (tmp_path / "celery").chmod(0o755)
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **environ}
    done = subprocess.run(
        [sys.executable, "deploy/start_flower.py"], cwd=ROOT, env=given, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0, done.stdout) == (starts, "started -A tasks flower\n" if starts else "")
    assert starts or "FLOWER_BASIC_AUTH" in done.stderr


DIGEST = f"sha256:{'0123456789abcdef' * 4}"

#: A registry that has one image, by one digest; what it is asked is written down.
BUILDAH = f"""#!/bin/sh
echo "$*" >> "$ASKED"
case "$1" in
pull) [ "$4" = python:3.11-slim ] || [ "$4" = registry.example:5000/python ] ;;
images) echo {DIGEST} ;;
esac
"""

MADE_OF = """
import sys
sys.path.insert(0, "deploy")
from pathlib import Path
import image
try:
    print(*image.by_digest(Path("deploy/Dockerfile"), sys.argv[1:])[0])
except image.Wrong as wrong:
    sys.exit(str(wrong))
"""


@pytest.mark.parametrize(
    ("given", "made_of", "pulls"),
    [
        ([], [f"BASE=python@{DIGEST}"], True),
        (["CHROMIUM=chromium"], ["CHROMIUM=chromium", f"BASE=python@{DIGEST}"], True),
        (["BASE=registry.example:5000/python"], [f"BASE=registry.example:5000/python@{DIGEST}"], True),
        ([f"BASE=registry.example/python@{DIGEST}"], [f"BASE=registry.example/python@{DIGEST}"], False),
        (["BASE=python@sha256:12"], None, False),
        (["BASE=gone:1"], None, True),
    ],
)
def test_an_image_is_made_of_a_base_by_its_digest(
    given: list[str], made_of: list[str] | None, pulls: bool, tmp_path: Path
) -> None:
    (tmp_path / "buildah").write_text(BUILDAH)
    (tmp_path / "buildah").chmod(0o755)
    asked = tmp_path / "asked"
    asked.touch()
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ASKED": str(asked)}
    done = subprocess.run(
        [sys.executable, "-c", MADE_OF, *given], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0, done.stdout.split()) == (made_of is not None, made_of or []), done.stderr
    assert asked.read_text().startswith("pull --policy always ") is pulls


def test_what_is_in_an_image_is_listed() -> None:
    """By the program that `make image` runs in it, here: Python's packages, and Debian's where there are such."""
    done = subprocess.run(
        [sys.executable, "deploy/contents.py", "9.9", f"registry.example:5000/python@{DIGEST}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    listed = json.loads(done.stdout)
    purls = [one["purl"] for one in listed["components"]]
    assert (listed["bomFormat"], listed["metadata"]["component"]["version"]) == ("CycloneDX", "9.9")
    assert [one for one in purls if one.startswith("pkg:pypi/sqlalchemy@2.")]
    assert bool(shutil.which("dpkg-query")) == any(one.startswith("pkg:deb/debian/") for one in purls)
    assert purls == sorted(set(purls))
    (base,) = (one for one in listed["components"] if one["type"] == "container")
    assert (base["name"], base["version"]) == ("registry.example:5000/python", DIGEST)
    of_base = f"pkg:oci/python@{DIGEST.replace(':', '%3A')}?repository_url=registry.example%3A5000"
    assert base["purl"] == of_base
