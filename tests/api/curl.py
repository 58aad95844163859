"""Calls as documents write them, in a shell; and a `curl` for machines without: -X, -H, -d and an address.

It connects to CURL_TO, wherever the address points.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.processes import ROOT

if TYPE_CHECKING:
    from tests.api.server import Api


def main() -> int:
    arguments = argparse.ArgumentParser("curl")
    arguments.add_argument("-H", dest="headers", action="append", default=[])
    arguments.add_argument("-d", dest="body")
    arguments.add_argument("-X", dest="method")
    arguments.add_argument("url")
    asked = arguments.parse_args()
    headers = dict(header.split(": ", 1) for header in asked.headers)
    url = httpx.URL(asked.url).copy_with(netloc=os.environ["CURL_TO"].encode())
    answer = httpx.request(asked.method or ("POST" if asked.body else "GET"), url, headers=headers, content=asked.body)
    print(answer.text)
    return 0 if answer.is_success else 22


def answered(api: Api, command: str, folder: Path) -> str:
    """What the command prints, whose addresses are the server's, on whichever port. `folder`: for its settings."""
    port = api.url.removeprefix("http://")
    hosts = "".join(f"connect-to = {host}:6002:{port}\n" for host in ("127.0.0.1", "localhost"))
    (folder / ".curlrc").write_text(f"{hosts}fail-with-body")
    if shutil.which("curl") is None:
        make(folder)
    found = {"PATH": f"{os.environ['PATH']}:{folder}", "CURL_HOME": str(folder), "CURL_TO": port}
    environ = os.environ | found | {"TOKEN": api.tokens["admin"], "no_proxy": "*"}
    asked = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, f"{asked.stdout}\n{asked.stderr}"
    return asked.stdout


def command(method: str, path: str, body: str | None) -> str:
    """A call of the API with the token of the shell it is run in."""
    sent = "" if body is None else f" -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    address = shlex.quote(f"http://localhost:6002{path}")
    return f'curl -X {method} {address} -H "Authorization: Bearer $TOKEN"{sent}'


def make(folder: Path) -> None:
    """The program, below this Python."""
    program = folder / "curl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.api.curl "$@"\n')
    program.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
