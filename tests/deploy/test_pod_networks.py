"""Network namespaces in which the manifests' policies and compose's networks hold: real sockets, the kernel refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import product

import pytest

from tests.deploy.compose import read
from tests.deploy.namespaces import ENTER, Network, Rule, reached
from tests.deploy.test_kubernetes import ASKING, BESIDE, PAGE, PLATFORM, SERVER, Document, base, pod_labels, selects

#: Where pods are, beside the servers.
PODS = {
    name: f"10.1.0.{number}" for number, name in enumerate(
        sorted(one["metadata"]["name"] for one in base() if one["kind"] in ("Deployment", "Job")), start=1
    )
}  # fmt: skip

#: A store of pictures on the Internet, a page that has another address, and what is inside beside the servers.
STORE, PAGE_6 = "52.219.72.1", "2606:4700::1111"
INSIDE = (*BESIDE, PLATFORM, "172.16.9.9", "100.64.0.9", "fd00:ec2::254")

PORTS = (22, 25, 53, 80, 443, 587, 5432, 6379, 6432, 8700, 9808, 26379)
PLACES = [*product((PAGE, PAGE_6, STORE, SERVER, *INSIDE, *PODS.values()), PORTS)]


@pytest.fixture(autouse=True, scope="module")
def namespaces() -> None:
    """CI has them; elsewhere these tests are skipped where there are none."""
    if (missing := what_is_missing()) is not None:
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


def what_is_missing() -> str | None:
    if shutil.which("ip") is None:
        return "no ip: install Debian's package iproute2"
    done = subprocess.run([*ENTER, "ip", "rule"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"this machine makes no network namespaces: {done.stderr}"


def policies(kind: str, pod: str) -> list[Document]:
    """Of what goes out of that pod (Egress), or comes to it (Ingress)."""
    found = [one["spec"] for one in base() if one["kind"] == "NetworkPolicy" and kind in one["spec"]["policyTypes"]]
    return [one for one in found if selects(one["podSelector"], pod_labels(pod))]


def rules_of(pod: str) -> list[Rule]:
    """As the platform joins the policies: both ends have to allow it, each by any of its policies."""
    made: list[Rule] = []
    for other, address in PODS.items():
        into = policies("Ingress", other)
        let_in = {
            p["port"] for one in into for rule in one.get("ingress", ()) if comes_from(rule, pod) for p in rule["ports"]
        }
        made += [Rule(address, port, allows=False) for port in PORTS if into and port not in let_in]
    out_of = policies("Egress", pod)
    made += [one for policy in out_of for rule in policy.get("egress", ()) for one in going_out(rule)]
    return made if out_of else [*made, Rule("0.0.0.0/0", None, allows=True), Rule("::/0", None, allows=True)]


def comes_from(rule: Document, pod: str) -> bool:
    peers = rule.get("from")
    return peers is None or any(
        "podSelector" in peer and "namespaceSelector" not in peer and selects(peer["podSelector"], pod_labels(pod))
        for peer in peers
    )


def going_out(rule: Document) -> Iterator[Rule]:
    """A block's exceptions are no one's else in these manifests, so that they can be refused before it is allowed."""
    for port in (one["port"] for one in rule["ports"] if one["protocol"] == "TCP"):
        for peer in rule.get("to", [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]):
            if "podSelector" in peer:
                those = [name for name in PODS if selects(peer["podSelector"], pod_labels(name))]
                yield from (Rule(PODS[name], port, allows=True) for name in those)
            else:
                yield from (Rule(one, port, allows=False) for one in peer["ipBlock"].get("except", ()))
                yield Rule(peer["ipBlock"]["cidr"], port, allows=True)


def test_without_policies_everybody_is_reached() -> None:
    """What is refused below is refused by them."""
    everywhere = [Rule("0.0.0.0/0", None, allows=True), Rule("::/0", None, allows=True)]
    assert reached(Network(PLACES, everywhere)) == {*PLACES}
    assert reached(Network(PLACES)) == set()


def test_a_pod_that_renders_pages_reaches_pages_and_the_store_of_pictures_and_nothing_else() -> None:
    """The store where it has a public address, as any page. Names are asked for, of whoever answers at these ports."""
    found = reached(Network(PLACES, rules_of("browser")))
    assert {place for place in found if place[1] != 53} == {*product((PAGE, PAGE_6, STORE), (80, 443))}
    assert all((SERVER, port) not in found for port in (5432, 6432, 6379, 26379))


@pytest.mark.parametrize("pod", [name for name in PODS if name != "browser"])
def test_other_pods_reach_servers_and_what_is_outside_and_only_those_that_ask_reach_the_browser(pod: str) -> None:
    found = reached(Network(PLACES, rules_of(pod)))
    assert {(SERVER, port) for port in (5432, 6432, 6379, 26379)} <= found
    assert {(PAGE, 443), (PAGE_6, 443), (STORE, 443)} <= found
    assert ((PODS["browser"], 8700) in found) is (pod in ASKING)
    assert [place for place in found if place[0] in (PLATFORM, "fd00:ec2::254") and place[1] != 53] == []
    assert [place for place in found if place[1] in (22, 80, 9808)] == []
    assert {place for place in found if place[1] == 8700} <= {(PODS["browser"], 8700)}


def test_in_compose_the_browser_reaches_neither_postgres_nor_redis() -> None:
    """A network is a segment of its own: what shares none with it is not there for it."""
    services = read()["services"]
    networks = {name: set(one.get("networks", ["default"])) for name, one in services.items()}
    at = {name: f"10.2.0.{number}" for number, name in enumerate(services, start=1)}
    places = [*product(at.values(), (5432, 6379, 8700, 8800))]
    found = {}
    for name in ("browser", "thumbnails", "beat"):
        together = [other for other in at if networks[other] & networks[name]]
        found[name] = reached(Network(places, [Rule(at[other], None, allows=True) for other in together]))
    servers = {(at["postgres"], 5432), (at["redis"], 6379)}
    assert not {place for place in found["browser"] if place[0] in (at["postgres"], at["redis"])}
    assert (at["sandbox"], 8800) in found["browser"]
    assert servers | {(at["browser"], 8700)} <= found["thumbnails"]
    assert servers <= found["beat"]
    assert (at["browser"], 8700) not in found["beat"]
