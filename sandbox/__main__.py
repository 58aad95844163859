"""`python -m sandbox`: prints the addresses as one line of JSON when ready, runs until SIGTERM or SIGINT.

Every option can also be set in the environment: `--http-port` as SANDBOX_HTTP_PORT, and so on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

import sandbox
from sandbox.faults import Plan, evenly, latency_range

#: As many stores have a menu from the start, and these subreddits posts.
STORES = 12
SUBREDDITS = ("Python", "AskReddit", "WorldNews")


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    description = "Local stand-ins of Duda, Cloudflare, menus, Reddit, mail, DNS and proxies."
    options = argparse.ArgumentParser("sandbox", description=description)

    def add(name: str, default: str, kind: Callable[[str], object], meaning: str) -> None:
        variable = "SANDBOX_" + name.upper().replace("-", "_")
        value = environ.get(variable) or default
        options.add_argument(f"--{name}", default=value, type=kind, help=f"{meaning} [{variable}, {default}]")

    add("host", "127.0.0.1", str, "address to listen on; 0.0.0.0 in a container")
    add("http-port", "0", int, "port of all that speaks HTTP; 0 is a free one")
    add("smtp-port", "0", int, "port of the mail server")
    add("dns-port", "0", int, "UDP port of the name server")
    add("proxies", "0", int, "as many proxies, on 127.0.0.11 and so on")
    add("latency-ms", "0", str, "delay of each answer in milliseconds, such as 50-200")
    add("faults", "0", float, "share of requests that meet a fault, 0 to 1")
    add("seed", "0", int, "the same seed and requests meet the same faults")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    command = parser(os.environ)
    options = command.parse_args(arguments)
    try:
        plan = Plan(latency_range(options.latency_ms), evenly(options.faults), seed=options.seed)
    except ValueError as error:
        command.error(f"--latency-ms or --faults: {error}")
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)  # Before threads start, so that all inherit it.
    places = {name: getattr(options, name) for name in ("http_port", "smtp_port", "dns_port", "proxies")}
    with sandbox.start(host=options.host, plan=plan, **places) as running:
        running.menus.open_stores(STORES)
        for name in SUBREDDITS:
            running.reddit.forum.open(name)
        running.webmenus.open_stores(STORES)
        proxies = [proxy.url for proxy in running.proxies]
        addresses = {"http_url": running.http_url, "smtp": running.smtp, "dns": running.dns, "proxies": proxies}
        print(json.dumps({**addresses, "environ": running.environ()}), flush=True)
        signal.sigwait(stop_signals)
    return 0


if __name__ == "__main__":
    sys.exit(main())
