"""The Kubernetes manifests: made of docker-compose.yml, valid by the platform's own schemas, and hardened."""

from __future__ import annotations

import copy
import inspect
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from celeriac.cli import manifests
from celeriac.cli.deployment import HEALTH
from celeriac.cli.objects import PORT
from celeriac.version import __version__
from tasks import app
from tests.deploy.test_compose import WORKERS
from tests.processes import ROOT, Rows

HERE = ROOT / "deploy" / "kubernetes"
COMPOSE = ROOT / "docker-compose.yml"
VERSION = "1.34"

#: What asks no server, by the name of the port: a worker's and a beat's own, the API's.
LIVE = {"metrics": "/livez", "http": "/healthz"}

Document = dict[str, Any]


def read(path: Path) -> list[Document]:
    return list(yaml.load_all(path.read_text(), yaml.CSafeLoader))


@cache
def base() -> list[Document]:
    """Read once, and never changed."""
    return [
        one for name in read(HERE / "base" / "kustomization.yaml")[0]["resources"] for one in read(HERE / "base" / name)
    ]


def complaints(documents: list[Document]) -> list[str]:
    """What the platform, or our own rules, would not take."""
    import kubernetes_validate  # three seconds, which every process would wait for to collect its tests

    found = [] if documents else ["nothing to look at"]
    for one in documents:
        name = f"{one.get('kind')} {one.get('metadata', {}).get('name')}"
        try:
            kubernetes_validate.validate(one, VERSION, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            found.append(f"{name}: {str(error).splitlines()[0]}")
        found += [f"{name}: {why}" for why in _against_rules(one)]
    return found


def _against_rules(one: Document) -> Iterator[str]:
    if one.get("kind") == "ConfigMap":
        yield from (f"{key} is a secret" for key in one["data"] if manifests.SECRETS.search(key))
    if one.get("kind") == "PodDisruptionBudget" and "minAvailable" in one["spec"]:
        yield "keeps a node from being drained where there is one pod"
    if one.get("kind") == "Job":
        yield from _against_rules_of_hooks(one)
    template = one.get("spec", {}).get("template")
    if one.get("kind") not in ("Deployment", "Job") or not template:
        return
    pod = template["spec"]
    if one["kind"] == "Deployment" and one["spec"]["selector"]["matchLabels"] != template["metadata"]["labels"]:
        yield "its selector is not its pods' labels"
    if not pod.get("securityContext", {}).get("runAsNonRoot"):
        yield "may run as root"
    if pod.get("automountServiceAccountToken") is not False:
        yield "has a token of the platform"
    for container in pod["containers"]:
        yield from _against_container_rules(container, pod)


def _against_rules_of_hooks(job: Document) -> Iterator[str]:
    if not all(
        source["configMapRef"].get("optional")
        for container in job["spec"]["template"]["spec"]["containers"]
        for source in container["envFrom"]
        if "configMapRef" in source
    ):
        yield "comes before its ConfigMap"
    if "ttlSecondsAfterFinished" not in job["spec"]:
        yield "cannot be applied once more"


def _against_container_rules(container: Document, pod: Document) -> Iterator[str]:
    rules = container.get("securityContext", {})
    if not rules.get("readOnlyRootFilesystem") or rules.get("allowPrivilegeEscalation") is not False:
        yield "may write to its image, or gain rights"
    if rules.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "keeps capabilities"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield "has no memory limit"
    if re.search(r":latest$", container.get("image", "")):
        yield "has a tag that moves"
    drain = {env["name"]: env.get("value") for env in container.get("env", ())}.get("CELERIAC_DRAIN_GRACE_MS")
    if drain and pod["terminationGracePeriodSeconds"] * 1000 < int(drain) + 20_000:
        yield "is killed before it has drained"
    probe = container.get("livenessProbe", {}).get("httpGet")
    if probe and LIVE.get(probe["port"]) != probe["path"]:
        yield "is restarted for what others do"


def test_what_is_committed_is_what_is_made() -> None:
    made = {ROOT / "deploy" / path: text for path, text in manifests.files(COMPOSE.read_text(), {}).items()}
    assert {path: path.read_text() for path in made} == made
    assert {*(HERE / "base").iterdir(), *(HERE / "components").glob("*/*")} == set(made)
    assert (ROOT / "deploy" / "health.py").read_text() == HEALTH


def test_the_platform_and_our_rules_take_them() -> None:
    assert complaints(base()) == []
    kinds = [one["kind"] for one in base()]
    assert kinds.count("Deployment") == kinds.count("PodDisruptionBudget") >= 10
    assert kinds.count("Job") == 1


def _worker(documents: list[Document]) -> Document:
    return next(one for one in documents if one["metadata"]["name"] == "worker-product-resync")


def _pod(documents: list[Document]) -> Document:
    found: Document = _worker(documents)["spec"]["template"]["spec"]
    return found


def _container(documents: list[Document]) -> Document:
    found: Document = _pod(documents)["containers"][0]
    return found


def _job(documents: list[Document]) -> Document:
    return next(one for one in documents if one["kind"] == "Job")


#: What makes them wrong, and what is said of it.
BROKEN: dict[str, tuple[Callable[[list[Document]], object], str]] = {
    "nothing": (lambda d: d.clear(), "nothing to look at"),
    "a misspelt field": (lambda d: _worker(d)["spec"].update(replica=3), "replica"),
    "a wrong type": (lambda d: _worker(d)["spec"].update(replicas="three"), "three"),
    "a selector of others": (lambda d: _worker(d)["spec"]["selector"]["matchLabels"].update(x="y"), "its selector"),
    "root": (lambda d: _pod(d)["securityContext"].pop("runAsNonRoot"), "may run as root"),
    "a writable image": (
        lambda d: _container(d)["securityContext"].update(readOnlyRootFilesystem=False), "may write to its image"
    ),
    "capabilities": (lambda d: _container(d)["securityContext"].pop("capabilities"), "keeps capabilities"),
    "no memory limit": (lambda d: _container(d)["resources"].pop("limits"), "has no memory limit"),
    "a moving tag": (lambda d: _container(d).update(image="celeriac:latest"), "has a tag that moves"),
    "too little grace": (lambda d: _pod(d).update(terminationGracePeriodSeconds=30), "before it has drained"),
    "a secret in the open": (
        lambda d: next(o for o in d if o["kind"] == "ConfigMap")["data"].update(DATABASE_URL="x"),
        "DATABASE_URL is a secret",
    ),
    "liveness that asks Redis": (
        lambda d: _container(d)["livenessProbe"]["httpGet"].update(path="/readyz"), "restarted for what others do"
    ),
    "liveness of another port": (
        lambda d: _container(d)["livenessProbe"]["httpGet"].update(path="/healthz"), "restarted for what others do"
    ),
    "a token of the platform": (lambda d: _pod(d).pop("automountServiceAccountToken"), "has a token of the platform"),
    "a budget that lets nobody go": (
        lambda d: next(o for o in d if o["kind"] == "PodDisruptionBudget")["spec"].update(minAvailable=1),
        "keeps a node from being drained",
    ),
    "a hook that waits for settings": (
        lambda d: _first_container(_job(d))["envFrom"][0]["configMapRef"].pop("optional"), "comes before its ConfigMap"
    ),
    "a job that stays": (lambda d: _job(d)["spec"].pop("ttlSecondsAfterFinished"), "cannot be applied once more"),
}  # fmt: skip


@pytest.mark.parametrize("slip", BROKEN)
def test_what_is_broken_is_refused(slip: str) -> None:
    documents = copy.deepcopy(base())
    breaks, said = BROKEN[slip]
    breaks(documents)
    (complaint,) = complaints([one for one in documents if one not in base()])
    assert said in complaint


@pytest.mark.parametrize(
    "name",
    [
        "CELERIAC_LOGINS",
        "ADMIN_DATABASE_URL",
        "BROKER_URL",
        "SENTRY_DSN",
        "AWS_ACCESS_KEY_ID",
        "CELERIAC_ENCRYPTION_KEY",
    ],
)
def test_a_credential_does_not_become_a_setting(name: str) -> None:
    assert set(manifests.config({name: "x", "NODE_ENV": "y"})["data"]) == {"NODE_ENV"}


def test_each_of_our_rules_has_a_broken_variant_that_it_refuses() -> None:
    ours = "".join(map(inspect.getsource, (_against_rules, _against_rules_of_hooks, _against_container_rules)))
    rules = re.findall(r'yield (?:from \()?f?"(?:{\w+})?([^"]+)"', ours)
    assert len(rules) == len(re.findall(r"\byield\b", ours)) - len(re.findall(r"yield from _", ours))
    tried = [said for _, said in BROKEN.values()]
    assert [rule for rule in rules if not any(said in rule or rule in said for said in tried)] == []


@pytest.mark.parametrize("overlay", ["dev", "prod"])
def test_an_overlay_names_what_there_is(overlay: str) -> None:
    (wanted,) = read(HERE / "overlays" / overlay / "kustomization.yaml")
    known = {"apiVersion", "kind", "namespace", "resources", "components", "images", "replicas"}
    assert set(wanted) <= known
    for path in (*wanted["resources"], *wanted.get("components", ())):
        assert (HERE / "overlays" / overlay / path / "kustomization.yaml").is_file()
    images = {container["image"] for one in base() if (container := _first_container(one))}
    assert {image["name"] for image in wanted["images"]} == images
    assert {image["newTag"] for image in wanted["images"]} == {{"dev": "dev", "prod": __version__}[overlay]}
    names = {one["metadata"]["name"] for one in base() if one["kind"] == "Deployment"}
    assert {one["name"] for one in wanted.get("replicas", ())} <= names


def test_a_patch_of_operations_is_the_json_that_kustomize_takes_it_for() -> None:
    """What begins with [ it does not read as YAML."""
    written = [patch for path in HERE.rglob("kustomization.yaml") for patch in read(path)[0].get("patches", ())]
    operations = [json.loads(patch["patch"]) for patch in written if patch["patch"].startswith("[")]
    assert [{"op": "remove", "path": "/spec/replicas"}] in operations


@pytest.mark.parametrize("overlay", ["dev", "prod"])
def test_an_overlay_is_built(overlay: str) -> None:
    """By kubectl, where there is one: KEDA's kinds are not the platform's."""
    made = [one for one in built(HERE / "overlays" / overlay) if not one["apiVersion"].startswith("keda.sh")]
    assert complaints(made or base()) == []
    workers = [one for one in made if one["kind"] == "Deployment" and one["metadata"]["name"].startswith("worker-")]
    assert [one for one in workers if ("replicas" in one["spec"]) == (overlay == "prod")] == []


def built(folder: Path) -> list[Document]:
    """What `kubectl apply -k` would send; nothing where no kubectl is."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return []
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def _first_container(one: Document) -> Document:
    """Of what has none: an empty one."""
    containers: list[Document] = one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [{}])
    return containers[0]


def _workers() -> dict[str, Document]:
    """The containers of those that run the services of docker-compose.yml, by the service."""
    found = {one["metadata"]["name"]: _first_container(one) for one in base() if one["kind"] == "Deployment"}
    return {name: found[f"worker-{name}"] for name in WORKERS}


def _option(container: Document, name: str) -> str:
    arguments = container["args"]
    return str(arguments[arguments.index(name) + 1])


def _roles(queues: str) -> set[str]:
    """Those whose tasks come to these queues."""
    return {role.name for role in app.roles.of_queues(queues.split(","))}


@pytest.mark.parametrize("service", WORKERS)
def test_a_worker_has_memory_for_its_processes(service: str) -> None:
    """Its tasks take no more: they have a browser elsewhere, so that none says `memory_per_task` (test_environment)."""
    container = _workers()[service]
    (limit,) = (int(env["value"]) for env in container["env"] if env["name"] == "CELERIAC_MEMORY_LIMIT_MB")
    assert container["resources"]["limits"]["memory"] == f"{limit}Mi"
    assert limit == 96 + 96 * int(_option(container, "-c"))
    assert [o["data"]["BROWSER_ADDRESS"] for o in base() if o["kind"] == "ConfigMap"] == ["browser:8700"]


def test_each_worker_is_scaled_by_figures_of_the_roles_of_its_queues(rows: Rows) -> None:
    """The scaler takes one row with one number: 0 for a role that is not registered."""
    scaled = [one for one in read(HERE / "components" / "keda" / "scaled.yaml") if one["kind"] == "ScaledObject"]
    targets = {one["spec"]["scaleTargetRef"]["name"]: one["spec"]["triggers"] for one in scaled}
    workers = _workers()
    assert set(targets) == {f"worker-{name}" for name in workers} | {"browser"}
    for name, container in workers.items():
        ((query, target),) = [
            (t["metadata"]["query"], t["metadata"]["targetQueryValue"]) for t in targets[f"worker-{name}"]
        ]
        assert rows(query) == [(0.0,)]
        assert _option(container, "-c") == target
        assert set(re.findall(r"'(\w+)'", query)) == _roles(_option(container, "-Q"))
    ((query, target),) = [(t["metadata"]["query"], t["metadata"]["targetQueryValue"]) for t in targets["browser"]]
    asking = [_roles(_option(workers[name.removeprefix("worker-")], "-Q")) for name in ASKING]
    assert rows(query) == [(0.0,)]
    assert (set(re.findall(r"'(\w+)'", query)), target) == (set().union(*asking), "8"), "BROWSER_AT_ONCE"


def test_a_worker_is_scaled_to_8_pods_at_most() -> None:
    (text,) = (text for name, text in manifests.files(COMPOSE.read_text(), {}).items() if name.endswith("scaled.yaml"))
    scaled = [one["spec"] for one in yaml.safe_load_all(text) if one["kind"] == "ScaledObject"]
    assert {(one["minReplicaCount"], one["maxReplicaCount"]) for one in scaled} == {(1, 8)}


def pod_labels(name: str) -> dict[str, str]:
    found: dict[str, str] = next(
        one["spec"]["template"]["metadata"]["labels"] for one in base()
        if one["kind"] in ("Deployment", "Job") and one["metadata"]["name"] == name
    )  # fmt: skip
    return found


def selects(selector: Document, labels: Mapping[str, str]) -> bool:
    among = {"In": True, "NotIn": False}
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        (labels.get(one["key"]) in one["values"]) is among[one["operator"]]
        for one in selector.get("matchExpressions", ())
    )


def reaches(pod: str, address: str, port: int) -> bool:
    """Whether the policies let that pod connect there by TCP: where one allows it, or anywhere if there is none.

    `address`: an IP address, or `pod` and the name of one of ours.
    """
    policies = [
        one["spec"] for one in base() if one["kind"] == "NetworkPolicy" and "Egress" in one["spec"]["policyTypes"]
    ]
    ours = [one for one in policies if selects(one["podSelector"], pod_labels(pod))]
    rules = [rule for one in ours for rule in one.get("egress", ())]
    return not ours or any(_allows(rule, address, port) for rule in rules)


def _allows(rule: Document, address: str, port: int) -> bool:
    to = rule.get("to")
    is_open = {"port": port, "protocol": "TCP"} in rule["ports"]
    return is_open and (to is None or any(_is_at(peer, address) for peer in to))


def _is_at(peer: Document, address: str) -> bool:
    kind, _, name = address.partition(" ")
    if kind == "pod":
        return "podSelector" in peer and selects(peer["podSelector"], pod_labels(name))
    if "ipBlock" not in peer:
        return False
    ip, block = ip_address(address), peer["ipBlock"]
    return ip in ip_network(block["cidr"]) and not any(ip in ip_network(one) for one in block.get("except", ()))


#: Where a worker's servers are, a page, the machines beside it, and who tells a platform's secrets.
SERVER, PAGE, BESIDE, PLATFORM = "10.0.3.4", "93.184.216.34", ("10.0.3.5", "192.168.7.1", "fd12::7"), "169.254.169.254"
ASKING = ("worker-thumbnails", "worker-stores", "worker-product-resync")


@pytest.mark.parametrize("pod", [f"worker-{name}" for name in WORKERS] + ["beat", "api", "migrate"])
def test_pods_reach_their_servers_and_what_is_named_and_nothing_else(pod: str) -> None:
    """Nothing is open that is not named; only those that ask the browser reach it."""
    assert all(reaches(pod, SERVER, port) for port in (5432, 6432, 6379, 26379))
    assert all(reaches(pod, SERVER, port) for port in (53, 5353)), "names, on OpenShift as well"
    assert reaches(pod, PAGE, 443)
    assert [port for port in (22, 80, 443, 5432, 6379, PORT) if reaches(pod, PLATFORM, port)] == []
    assert [port for port in (22, 80) if reaches(pod, PAGE, port)] == []
    assert not reaches(pod, SERVER, PORT), "figures and probes are the platform's to ask"
    assert reaches(pod, "pod browser", 8700) is (pod in ASKING)
    assert not reaches(pod, SERVER, 8700)


def test_the_pod_that_renders_reaches_pages_at_public_addresses_and_nothing_else() -> None:
    """No port of a server's, wherever it is; no machine beside it; not its own workers. Names are asked for."""
    inside = (SERVER, *BESIDE, PLATFORM, "127.0.0.1", "pod worker-thumbnails", "pod api")
    ports = (22, 25, 80, 443, 587, 5432, 6379, 6432, 8700, PORT, 26379)
    assert [(address, port) for address in inside for port in ports if reaches("browser", address, port)] == []
    assert [port for port in ports if reaches("browser", PAGE, port)] == [80, 443]
    assert all(reaches("browser", SERVER, port) for port in (53, 5353))


def test_a_policy_that_is_taken_away_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tables above assert can fail."""
    without = [one for one in base() if (one["kind"], one["metadata"]["name"]) != ("NetworkPolicy", "browser")]
    monkeypatch.setattr("tests.deploy.test_kubernetes.base", lambda: without)
    assert reaches("browser", PLATFORM, 80), "with no policy of its own it reaches everything"
    monkeypatch.setattr(
        "tests.deploy.test_kubernetes.base", lambda: [o for o in without if o["kind"] != "NetworkPolicy"]
    )
    assert reaches("worker-thumbnails", PLATFORM, 80)


def secret_of(name: str) -> str:
    spec = next(o for o in base() if o["kind"] in ("Deployment", "Job") and o["metadata"]["name"] == name)["spec"]
    pod = spec["template"]["spec"]
    (secret,) = (one["secretRef"]["name"] for one in pod["containers"][0]["envFrom"] if "secretRef" in one)
    account = pod.get("serviceAccountName")
    assert account == (None if name == "migrate" else secret)
    return str(secret)


def test_each_kind_of_pod_has_its_own_secret_and_account() -> None:
    """Only what migrates has the owner's address; only the API what operators may; pages' pods nothing of others."""
    names = [one["metadata"]["name"] for one in base() if one["kind"] in ("Deployment", "Job")]
    by_secret: dict[str, set[str]] = {}
    for name in names:
        by_secret.setdefault(secret_of(name), set()).add(name)
    assert by_secret["celeriac-migrate"] == {"migrate"}
    assert by_secret["celeriac-api"] == {"api"}
    assert by_secret["celeriac-browser"] == {"browser"}
    assert by_secret["celeriac-worker"] == {f"worker-{name}" for name in WORKERS} | {"beat"}
    accounts = {one["metadata"]["name"] for one in base() if one["kind"] == "ServiceAccount"}
    assert accounts == set(by_secret) - {"celeriac-migrate"}
    assert all(f"`{name}`" in (HERE / "README.md").read_text() for name in by_secret)


def test_the_pod_that_renders_is_told_nothing() -> None:
    """No setting of the others', no address of a server's, none of the platform's; its Secret has one token."""
    spec = next(o for o in base() if o["kind"] == "Deployment" and o["metadata"]["name"] == "browser")["spec"]
    pod, (container,) = spec["template"]["spec"], spec["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "celeriac-browser"}}]
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "BROWSER_LISTEN": "0.0.0.0:8700", "BROWSER_AT_ONCE": "8"
    }  # fmt: skip
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert pod["volumes"] == [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": f"{8 * 128}Mi"}}]
    assert container["resources"]["limits"] == {"memory": f"{96 + 8 * (512 + 128)}Mi"}
    images = [(one["metadata"]["name"], _first_container(one).get("image")) for one in base()]
    assert [name for name, image in images if image == "celeriac-browser"] == ["browser"]
