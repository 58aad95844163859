"""A pod's network by the platform's own means: a network namespace in which the kernel refuses what no policy allows.

    unshare --net python tests/deploy/namespaces.py     a Network as JSON on stdin; what is reached, as JSON, on stdout

The namespace has all addresses of the test, somebody listens at each of their ports, and rules of routing say where a
connection may go: the rest of them ends with EACCES. Nothing of it is seen outside, and it is gone with the process.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address, ip_network

#: What begins the namespace's process: as root, or as root of a user namespace of one's own.
ENTER = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]

#: Whoever connects, by the version of IP.
OWN = {4: "10.9.9.9", 6: "fd99::9"}

#: Seconds; in a namespace everybody answers at once.
PATIENCE = 10.0


@dataclass(frozen=True)
class Rule:
    """To this network (`0.0.0.0/0`, an address) a connection to this port, by TCP, is allowed or refused."""

    to: str
    port: int | None
    allows: bool


@dataclass(frozen=True)
class Network:
    """`places`: addresses and ports where somebody listens. The first of `rules` that fits decides; none: refused."""

    places: Sequence[tuple[str, int]]
    rules: Sequence[Rule] = field(default_factory=list)


def reached(network: Network) -> set[tuple[str, int]]:
    """The places that a process in the namespace connects to."""
    done = subprocess.run(
        [*ENTER, sys.executable, "-S", __file__], input=json.dumps(asdict(network)), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {(address, port) for address, port in json.loads(done.stdout)}


def addresses(network: Network) -> Iterator[str]:
    yield "link set lo up"
    for address in {*(place for place, _ in network.places), *OWN.values()}:
        is_4 = ip_address(address).version == 4
        yield f"addr add {address}/{32 if is_4 else 128} dev lo {'' if is_4 else 'nodad'}"


def routing(network: Network, version: int) -> Iterator[str]:
    """What is refused without a rule: by default, everything reaches the machine's own addresses."""
    rules = [_words(one) for one in network.rules if ip_network(one.to).version == version]
    for priority, words in enumerate([f"to {OWN[version]} lookup local", *rules, "prohibit"], start=1):
        yield f"rule add pref {priority} {words}"
    yield "rule del pref 0"


def _words(rule: Rule) -> str:
    port = f"ipproto tcp dport {rule.port}" if rule.port else ""
    return f"to {rule.to} {port} {'lookup local' if rule.allows else 'prohibit'}"


def ip(lines: Iterable[str], *options: str) -> None:
    subprocess.run(["ip", *options, "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _listening(places: Iterable[tuple[str, int]]) -> Iterator[socket.socket]:
    for address, port in places:
        yield socket.create_server((address, port), family=_family(address))


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6


def connects(address: str, port: int) -> bool:
    """Raises OSError for anything but a refusal of the kernel's: somebody listens there."""
    try:
        socket.create_connection((address, port), PATIENCE, (OWN[ip_address(address).version], 0)).close()
    except PermissionError:
        return False
    return True


def main() -> None:
    told = json.load(sys.stdin)
    network = Network([tuple(place) for place in told["places"]], [Rule(**rule) for rule in told["rules"]])
    ip(addresses(network))
    with ExitStack() as life:
        for listening in _listening(network.places):
            life.enter_context(listening)
        for version in OWN:
            ip(routing(network, version), f"-{version}")
        print(json.dumps([place for place in network.places if connects(*place)]))


if __name__ == "__main__":
    main()
