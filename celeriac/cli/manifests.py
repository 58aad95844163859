"""Kubernetes manifests, made of docker-compose.yml: a Deployment for each worker service, with the same command.

The platform has to add a Secret for each kind of pod, an image, a Postgres and a Redis.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import yaml  # type: ignore[import-untyped]

from celeriac.cli.objects import (
    INSIDE,
    PLATFORM,
    PORT,
    Document,
    account,
    deployment,
    disruption,
    labels,
    named,
    names,
    pod,
    policy,
    probes,
    reach,
    scaled,
    service,
)

#: Settings that give access to the application's data, or allow sending in its name. They come from a pod's Secret.
SECRETS = re.compile(
    r"^(\w+_)?(DATABASE|REDIS|BROKER)_URL$|_(LOGINS|DSN)$|^SMTP_|PASSWORD|TOKEN|SECRET|CREDENTIALS|_KEY(_ID)?$"
)

#: Seconds that a worker has to drain (CELERIAC_DRAIN_GRACE_MS), and further seconds that a pod has to end.
DRAIN, TO_END = 25, 20

#: Of two pods one stays; a single one, as in the overlay `dev`, may be evicted, so that its node can be drained.
ONE_AT_A_TIME: Document = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}

#: Names of roles by the queue in which they wait.
RolesOfQueues = Mapping[str, Sequence[str]]

#: Measured memory in MiB: a worker's parent, each of its processes, Chromium for a page, and the page's part of /tmp,
#: which is memory too.
PARENT_MI, PROCESS_MI, BROWSER_MI, BROWSER_TMP_MI = 96, 96, 512, 128


#: Secrets and service accounts. Each Secret has only the login that its pods need (`celeriac migrate --with-grants`);
#: that of pods that open web pages has no login.
MIGRATE, WORKER, API, BROWSER = "celeriac-migrate", "celeriac-worker", "celeriac-api", "celeriac-browser"

#: Ports that pods reach, beside DNS: Postgres and PgBouncer, Redis and Sentinels; HTTPS and mail; web pages.
SERVERS, OUTSIDE, PAGES = (5432, 6432, 6379, 26379), (443, 25, 465, 587), (443, 80)

#: The service that opens pages for the others, in compose and here.
RENDERER = "browser"


def documents(services: Mapping[str, Document]) -> dict[str, list[Document]]:
    """Return the base's documents by file name."""
    workers = {name: shlex.split(one["command"]) for name, one in services.items() if "worker -Q" in _flat(one)}
    asking = [f"worker-{name}" for name in workers if _asks_browser(services[name])]
    listens = services[RENDERER]["environment"]["BROWSER_LISTEN"] if asking else ":0"
    port = int(str(listens).rpartition(":")[2])
    files = {
        "config.yaml": [config(services["beat"]["environment"])],
        "migrate.yaml": [migrate(services["migrate"])],
        "beat.yaml": [*beat(services["beat"])],
        "api.yaml": [*api(services["api"])],
        "accounts.yaml": [account(name) for name in (WORKER, API, *([BROWSER] if asking else ()))],
        "network.yaml": [*network(asking, port)],
    }
    if asking:
        files["browser.yaml"] = [*renderer(services[RENDERER], port)]
    for name, command in workers.items():
        files[f"worker-{name}.yaml"] = [*worker(name, command)]
    return files


def autoscaling(services: Mapping[str, Document], roles: RolesOfQueues) -> list[Document]:
    """Return the component keda: a ScaledObject for each worker, scaled by a bounded figure in SQL, and one for the
    browser, scaled by all roles that use it.
    """
    name = "celeriac-autoscaler"
    access = {"secretTargetRef": [{"parameter": "connection", "name": name, "key": "connection"}]}
    made = [named("keda.sh/v1alpha1", "TriggerAuthentication", name, spec=access)]
    asking: list[str] = []
    for name, one in services.items():
        if "worker -Q" in _flat(one):
            command = [_without_default(part) for part in shlex.split(one["command"])]
            wanted = [
                role for queue in command[command.index("-Q") + 1].split(",") for role in roles.get(queue, [queue])
            ]
            made.append(scaled(f"worker-{name}", wanted, _processes(command)))
            asking += wanted if _asks_browser(one) else []
    return [*made, scaled(RENDERER, asking, _at_once(services[RENDERER]))] if asking else made


def config(environment: dict[str, object]) -> Document:
    """Return the settings with compose's defaults, without those that name the sandbox: an overlay sets these."""
    settings = {name: _without_default(str(value)) for name, value in environment.items() if not SECRETS.search(name)}
    settings |= {"NODE_ENV": "production"} if "NODE_ENV" in settings else {}
    data = {name: value for name, value in sorted(settings.items()) if "sandbox" not in value}
    return named("v1", "ConfigMap", "celeriac", data=data)


def migrate(service: Document) -> Document:
    """Return the job that migrates before each rollout. Of two at once, one waits for the other's lock in Postgres."""
    spec = pod("migrate", shlex.split(service["command"]), MIGRATE, memory=256, grace=30)
    spec["restartPolicy"] = "Never"
    # The hook runs before the other objects exist: the first time there is no account or ConfigMap, and it needs none.
    del spec["serviceAccountName"]
    spec["containers"][0]["envFrom"][0]["configMapRef"]["optional"] = True
    job = named("batch/v1", "Job", "migrate", labelled=True)
    job["metadata"]["annotations"] = {
        "argocd.argoproj.io/hook": "PreSync",
        "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation",
        "helm.sh/hook": "pre-install,pre-upgrade",
        "helm.sh/hook-delete-policy": "before-hook-creation",
    }
    job["spec"] = {
        "backoffLimit": 3,
        "activeDeadlineSeconds": 900,
        "ttlSecondsAfterFinished": 600,
        "template": {"metadata": {"labels": labels("migrate")}, "spec": spec},
    }
    return job


def beat(service: Document) -> list[Document]:
    """Return two beats for the same schedules. A row lock makes sure that only one of them takes each instant."""
    spec = pod("beat", shlex.split(service["command"]), WORKER, memory=256, grace=30, probed=True)
    return [deployment("beat", spec, replicas=2), disruption("beat", ONE_AT_A_TIME)]


def api(compose: Document) -> list[Document]:
    spec = pod("api", shlex.split(compose["command"]), API, memory=512, grace=30)
    container = spec["containers"][0]
    container["env"] += [
        {"name": "CELERIAC_API_HOST", "value": "0.0.0.0"},  # noqa: S104 - a pod's own address
        {"name": "CELERIAC_API_PORT", "value": "6002"},
    ]
    container["ports"] = [{"name": "http", "containerPort": 6002}]
    container |= probes("http", "/healthz", "/readyz")
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return [deployment("api", spec, replicas=2), disruption("api", ONE_AT_A_TIME), service("api", ports)]


def worker(name: str, command: list[str]) -> list[Document]:
    """Return a worker's Deployment. Its pods are busy, so the budget lets only a quarter be evicted at a time."""
    command = [_without_default(part) for part in command]
    processes = _processes(command)
    memory = PARENT_MI + processes * PROCESS_MI
    spec = pod(f"worker-{name}", command, WORKER, memory=memory, grace=DRAIN + TO_END, probed=True)
    spec["containers"][0]["env"] += [
        {"name": "WORKER_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CELERIAC_MEMORY_LIMIT_MB", "value": str(memory)},
        {"name": "CELERIAC_DRAIN_GRACE_MS", "value": str(DRAIN * 1000)},
    ]
    budget = {"maxUnavailable": "25%", "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    return [deployment(f"worker-{name}", spec, replicas=1), disruption(f"worker-{name}", budget)]


def renderer(compose: Document, port: int) -> list[Document]:
    """Return the pod that opens web pages. Its environment has only the settings listed here and the token of its
    Secret: no ConfigMap, no addresses of services, no service account's token.
    """
    settings = {name: _without_default(str(value)) for name, value in compose["environment"].items()}
    at_once = _at_once(compose)
    memory = PARENT_MI + at_once * (BROWSER_MI + BROWSER_TMP_MI)
    spec = pod(RENDERER, shlex.split(compose["command"]), BROWSER, memory=memory, grace=30)
    spec["enableServiceLinks"] = False
    container = spec["containers"][0]
    container |= {"image": "celeriac-browser", "envFrom": [{"secretRef": {"name": BROWSER}}]}
    container["env"] = [
        {"name": name, "value": value}
        for name, value in settings.items() if value and not SECRETS.search(name) and "sandbox" not in value
    ]  # fmt: skip
    container["ports"] = [{"name": RENDERER, "containerPort": port}]
    for probe, most in (("livenessProbe", 3), ("readinessProbe", 3), ("startupProbe", 30)):
        container[probe] = {"tcpSocket": {"port": RENDERER}, "periodSeconds": 10, "failureThreshold": most}
    # Chromium keeps its shared memory in /tmp. A page that fills it fails alone; a full disk would evict the pod.
    spec["volumes"] = [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": f"{at_once * BROWSER_TMP_MI}Mi"}}]
    ports = [{"port": port, "targetPort": RENDERER}]
    return [deployment(RENDERER, spec, replicas=1), disruption(RENDERER, ONE_AT_A_TIME), service(RENDERER, ports)]


def network(asking: Sequence[str], port: int) -> list[Document]:
    """Return the network policies.

    Pods accept connections only at the API's port, and, from pods with this label, for figures and probes. Pods reach
    servers and the outside. The browser reaches only pages at public addresses, and accepts connections at its port
    from pods that are `asking` it.
    """
    monitored = {"namespaceSelector": {"matchLabels": {"celeriac/may-scrape": "true"}}}
    scraped = {"ports": [{"port": PORT, "protocol": "TCP"}], "from": [monitored]}
    ours = {"matchLabels": {"app.kubernetes.io/name": "celeriac"}}
    others = ours | (_component("NotIn", [RENDERER]) if asking else {})
    made = [
        policy("celeriac", others, [scraped], [names(), reach(SERVERS, PLATFORM)]),
        policy("api", {"matchLabels": labels("api")}, [{"ports": [{"port": 6002, "protocol": "TCP"}]}]),
        policy("outside", others, egress=[reach(OUTSIDE, PLATFORM)]),
    ]
    if asking:
        ports, them = [{"port": port, "protocol": "TCP"}], ours | _component("In", asking)
        browser, to_pages = {"matchLabels": labels(RENDERER)}, [names(), reach(PAGES, INSIDE)]
        made += [
            policy(RENDERER, browser, [{"ports": ports, "from": [{"podSelector": them}]}], to_pages),
            policy("asking", them, egress=[{"ports": ports, "to": [{"podSelector": browser}]}]),
        ]
    return made


def _component(operator: str, components: Sequence[str]) -> Document:
    key = "app.kubernetes.io/component"
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(components)}]}


def _at_once(browser: Document) -> int:
    return int(_without_default(str(browser["environment"]["BROWSER_AT_ONCE"])))


def _asks_browser(service: Document) -> bool:
    return "BROWSER_TOKEN" in service.get("environment", {})


def _flat(service: Document) -> str:
    return " ".join(str(service.get("command", "")).split())


def _without_default(part: str) -> str:
    """Return the default in `${NAME:-default}` or `${NAME-default}`."""
    return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", part)


def _processes(command: list[str]) -> int:
    return int(command[command.index("-c") + 1])


def as_yaml(documents: list[Document]) -> str:
    return "---\n".join(yaml.safe_dump(one, sort_keys=False, width=120) for one in documents)


def files(compose: str, roles: RolesOfQueues) -> dict[str, str]:
    """Return the text of each file for the services of a docker-compose.yml, by its path below the folder deploy.
    `roles`: those of queues that do not have their only role's name.
    """
    services = yaml.safe_load(compose)["services"]
    base = {name: as_yaml(parts) for name, parts in documents(services).items()}
    base["kustomization.yaml"] = as_yaml([_KUSTOMIZATION | {"resources": sorted(base)}])
    scaled = autoscaling(services, roles)
    unscaled = [
        {"target": {"kind": "Deployment", "name": one["metadata"]["name"]},
         "patch": '[{"op": "remove", "path": "/spec/replicas"}]'}
        for one in scaled if one["kind"] == "ScaledObject"
    ]  # fmt: skip
    components = {
        "keda/scaled.yaml": as_yaml(scaled),
        "keda/kustomization.yaml": as_yaml([_COMPONENT | {"resources": ["scaled.yaml"], "patches": unscaled}]),
    }
    return {f"kubernetes/base/{name}": text for name, text in base.items()} | {
        f"kubernetes/components/{name}": text for name, text in components.items()
    }


_KUSTOMIZATION: Document = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
_COMPONENT: Document = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
