"""The Kubernetes manifests: made of docker-compose.yml, valid by the platform's own schemas, and hardened."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.processes import ROOT, Rows

sys.path.insert(0, str(ROOT / "deploy"))
import manifests

HERE = ROOT / "deploy" / "kubernetes"
VERSION = "1.34"

Document = dict[str, Any]


def read(path: Path) -> list[Document]:
    return list(yaml.safe_load_all(path.read_text()))


def base() -> list[Document]:
    return [
        one for name in read(HERE / "base" / "kustomization.yaml")[0]["resources"] for one in read(HERE / "base" / name)
    ]


def complaints(documents: list[Document]) -> list[str]:
    """What the platform, or our own rules, would not take."""
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
    if "livenessProbe" in container and container["livenessProbe"]["httpGet"]["path"] not in ("/livez", "/healthz"):
        yield "is restarted for what others do"


def test_what_is_committed_is_what_is_made() -> None:
    made = manifests.files()
    assert {path: path.read_text() for path in made} == made
    there = set((HERE / "base").iterdir()) | set((HERE / "components" / "keda").iterdir())
    assert there == set(made)


def test_the_platform_and_our_rules_take_them() -> None:
    assert complaints(base()) == []
    kinds = [one["kind"] for one in base()]
    assert kinds.count("Deployment") == kinds.count("PodDisruptionBudget") >= 10
    assert kinds.count("Job") == 1


def _worker(documents: list[Document]) -> Document:
    return next(one for one in documents if one["metadata"]["name"] == "worker-product-resync")


def _container(documents: list[Document]) -> Document:
    found: Document = _worker(documents)["spec"]["template"]["spec"]["containers"][0]
    return found


BROKEN: dict[str, Callable[[list[Document]], object]] = {
    "nothing": lambda d: d.clear(),
    "a misspelt field": lambda d: _worker(d)["spec"].update(replica=3),
    "a wrong type": lambda d: _worker(d)["spec"].update(replicas="three"),
    "a selector of others": lambda d: _worker(d)["spec"]["selector"]["matchLabels"].update(x="y"),
    "root": lambda d: _worker(d)["spec"]["template"]["spec"]["securityContext"].pop("runAsNonRoot"),
    "a writable image": lambda d: _container(d)["securityContext"].update(readOnlyRootFilesystem=False),
    "capabilities": lambda d: _container(d)["securityContext"].pop("capabilities"),
    "no memory limit": lambda d: _container(d)["resources"].pop("limits"),
    "a moving tag": lambda d: _container(d).update(image="celeriac:latest"),
    "too little grace": lambda d: _worker(d)["spec"]["template"]["spec"].update(terminationGracePeriodSeconds=30),
    "a secret in the open": lambda d: next(o for o in d if o["kind"] == "ConfigMap")["data"].update(DATABASE_URL="x"),
    "liveness that asks Redis": lambda d: _container(d)["livenessProbe"]["httpGet"].update(path="/readyz"),
    "a token of the platform": lambda d: _worker(d)["spec"]["template"]["spec"].pop("automountServiceAccountToken"),
}


@pytest.mark.parametrize("slip", BROKEN)
def test_what_is_broken_is_refused(slip: str) -> None:
    documents = copy.deepcopy(base())
    BROKEN[slip](documents)
    assert complaints(documents)


@pytest.mark.parametrize("overlay", ["dev", "prod"])
def test_an_overlay_names_what_there_is(overlay: str) -> None:
    (wanted,) = read(HERE / "overlays" / overlay / "kustomization.yaml")
    known = {"apiVersion", "kind", "namespace", "resources", "components", "images", "replicas"}
    assert set(wanted) <= known
    for path in (*wanted["resources"], *wanted.get("components", ())):
        assert (HERE / "overlays" / overlay / path / "kustomization.yaml").is_file()
    images = {c["image"] for one in base() if (c := _first_container(one))}
    assert {image["name"] for image in wanted["images"]} == images
    assert all(image.get("newTag") not in (None, "latest") for image in wanted["images"])
    names = {one["metadata"]["name"] for one in base() if one["kind"] == "Deployment"}
    assert {one["name"] for one in wanted.get("replicas", ())} <= names


def _first_container(one: Document) -> Document | None:
    containers = one.get("spec", {}).get("template", {}).get("spec", {}).get("containers")
    return containers[0] if containers else None


def test_each_worker_is_scaled_by_a_figure_of_its_own_queues(rows: Rows) -> None:
    """The scaler takes one row with one number: 0 for a role that is not registered."""
    scaled = [one for one in read(HERE / "components" / "keda" / "scaled.yaml") if one["kind"] == "ScaledObject"]
    workers = {one["metadata"]["name"]: one for one in base() if one["metadata"]["name"].startswith("worker-")}
    assert {one["spec"]["scaleTargetRef"]["name"] for one in scaled} == set(workers)
    for one in scaled:
        ((query, target),) = [
            (t["metadata"]["query"], t["metadata"]["targetQueryValue"]) for t in one["spec"]["triggers"]
        ]
        assert rows(query) == [(0.0,)]
        deployment = next(
            d for d in base() if d["metadata"]["name"] == one["metadata"]["name"] and d["kind"] == "Deployment"
        )
        arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        assert arguments[arguments.index("-c") + 1] == target
        assert re.findall(r"'(\w+)'", query) == arguments[arguments.index("-Q") + 1].split(",")
