"""Lists what is installed where it runs, Python's and Debian's packages, as CycloneDX: `make image` does in the image.

python contents.py VERSION [BASE]     the image's, and what it is made from: NAME@sha256:…
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from typing import Any
from urllib.parse import quote

FORMAT = "${Package} ${Version} ${Architecture}\n"


def document(version: str, *bases: str) -> dict[str, Any]:
    listed = (*map(_of_base, bases), *_of_python(), *_of_debian())
    components = sorted({one["purl"]: one for one in listed}.items())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "celeriac", "version": version}},
        "components": [one for _, one in components],
    }


def _of_python() -> Iterator[dict[str, str]]:
    for one in distributions():
        name = one.metadata["Name"].lower().replace("_", "-")
        yield _component(name, one.version, f"pkg:pypi/{quote(name)}@{quote(one.version, safe='')}")


def _of_debian() -> Iterator[dict[str, str]]:
    if shutil.which("dpkg-query") is None:
        return
    query = ["dpkg-query", "--show", f"--showformat={FORMAT}"]
    for line in subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines():
        name, version, architecture = line.split(" ")
        purl = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?arch={architecture}"
        yield _component(name, version, purl)


def _of_base(base: str) -> dict[str, str]:
    name, _, digest = base.partition("@")
    repository = f"?repository_url={quote(name.rpartition('/')[0], safe='')}" if "/" in name else ""
    purl = f"pkg:oci/{quote(name.rpartition('/')[2], safe='')}@{quote(digest, safe='')}{repository}"
    return _component(name, digest, purl) | {"type": "container"}


def _component(name: str, version: str, purl: str) -> dict[str, str]:
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


if __name__ == "__main__":
    print(json.dumps(document(*sys.argv[1:]), indent=2))
