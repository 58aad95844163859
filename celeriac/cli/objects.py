"""Kubernetes objects for manifests.py: hardened, with probes, spread over nodes, and labelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]

#: The user id in deploy/Dockerfile.
USER = 10001

PORT = 9808


def pod(name: str, command: list[str], secret: str, *, memory: int, grace: int, probed: bool = False) -> Document:
    """Return a pod's spec. `secret` is the name of its Secret and of its service account."""
    container: Document = {
        "name": name.partition("-")[0],
        "image": "celeriac",
        "args": command,
        "env": [{"name": "CELERIAC_METRICS_ADDRESS", "value": f"0.0.0.0:{PORT}"}] if probed else [],
        "envFrom": [{"configMapRef": {"name": "celeriac"}}, {"secretRef": {"name": secret}}],
        "resources": {"requests": {"cpu": "100m", "memory": f"{memory}Mi"}, "limits": {"memory": f"{memory}Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if probed:
        container["ports"] = [{"name": "metrics", "containerPort": PORT}]
        container |= probes("metrics", "/livez", "/readyz")
    return {
        "serviceAccountName": secret,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": grace,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels(name)},
            }
        ],
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
    }  # fmt: skip


def probes(port: str, live: str, ready: str) -> Document:
    """Return the probes. Liveness queries neither Redis nor Postgres, so an outage of theirs restarts no pod."""
    return {
        "livenessProbe": {"httpGet": {"path": live, "port": port}, "periodSeconds": 20, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": ready, "port": port}, "periodSeconds": 10, "timeoutSeconds": 5},
        "startupProbe": {"httpGet": {"path": live, "port": port}, "periodSeconds": 2, "failureThreshold": 60},
    }


def deployment(name: str, spec: Document, *, replicas: int) -> Document:
    made = named("apps/v1", "Deployment", name, labelled=True)
    made["spec"] = {
        "replicas": replicas,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
        "selector": {"matchLabels": labels(name)},
        "template": {"metadata": {"labels": labels(name)}, "spec": spec},
    }
    return made


def named(version: str, kind: str, name: str, *, labelled: bool = False, **parts: Any) -> Document:
    """Return an object with its metadata and further parts."""
    metadata = {"name": name} | ({"labels": labels(name)} if labelled else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def service(name: str, ports: Sequence[Document]) -> Document:
    return named("v1", "Service", name, labelled=True, spec={"selector": labels(name), "ports": list(ports)})


def disruption(name: str, budget: Document) -> Document:
    spec = budget | {"selector": {"matchLabels": labels(name)}}
    return named("policy/v1", "PodDisruptionBudget", name, spec=spec)


def account(name: str) -> Document:
    """Return a service account without any rights."""
    return named("v1", "ServiceAccount", name, automountServiceAccountToken=False)


#: Addresses that are not public, of IPv4 and of IPv6: PLATFORM, where the platform gives out secrets, and INSIDE, all.
PLATFORM = ("169.254.0.0/16",), ("fe80::/10", "fd00:ec2::/32")
INSIDE = (
    ("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
     "198.18.0.0/15", "224.0.0.0/3"),
    ("::1/128", "64:ff9b::/96", "fc00::/7", "fe80::/10", "ff00::/8"),
)  # fmt: skip


def policy(name: str, pods: Document, ingress: Sequence[Document] = (), egress: Sequence[Document] = ()) -> Document:
    """Return a policy that allows connections to `pods` (a selector) and from them, beside those of other policies."""
    rules = {"ingress": list(ingress)} if ingress else {}
    rules |= {"egress": list(egress)} if egress else {}
    spec = {"podSelector": pods, "policyTypes": [name.capitalize() for name in rules], **rules}
    return named("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)


def names() -> Document:
    """Return the rule that allows DNS, also at a node's link-local cache.

    A policy applies to the port of the pod that answers, which is 5353 in OpenShift.
    """
    return {"ports": [{"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")]}


def reach(ports: Sequence[int], but: tuple[Sequence[str], Sequence[str]]) -> Document:
    """Return the rule that allows these ports at any address but those in `but`, of IPv4 and of IPv6."""
    four, six = but
    return {
        "ports": [{"port": port, "protocol": "TCP"} for port in ports],
        "to": [
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": list(four)}}, {"ipBlock": {"cidr": "::/0", "except": list(six)}}
        ],
    }  # fmt: skip


def scaled(name: str, roles: Sequence[str], processes: int) -> Document:
    literals = (role.replace("'", "''") for role in roles)
    wanted = " + ".join(f"celeriac.wanted_slots('{role}')" for role in literals)
    spec = {
        "scaleTargetRef": {"name": name},
        "minReplicaCount": 1, "maxReplicaCount": 8, "pollingInterval": 15, "cooldownPeriod": 300,
        "fallback": {"failureThreshold": 4, "replicas": 2, "behavior": "currentReplicasIfHigher"},
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {
            "scaleDown": {
                "stabilizationWindowSeconds": 300,
                "policies": [{"type": "Percent", "value": 25, "periodSeconds": 60}],
            },
            "scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 30}]},
        }}},
        "triggers": [
            {
                "type": "postgresql", "metricType": "AverageValue",
                "authenticationRef": {"name": "celeriac-autoscaler"},
                "metadata": {
                    "query": f"SELECT {wanted}", "targetQueryValue": str(processes),
                    "activationTargetQueryValue": "0",
                },
            }
        ],
    }  # fmt: skip
    return named("keda.sh/v1alpha1", "ScaledObject", name, spec=spec)


def labels(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "celeriac", "app.kubernetes.io/component": component}
