"""A `curl` for machines without: -X, -H, -d and an address. It connects to CURL_TO, wherever the address points."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import httpx


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


def make(folder: Path) -> None:
    """The program, below this Python."""
    program = folder / "curl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.api.curl "$@"\n')
    program.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
