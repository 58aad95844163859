"""The files of `celeriac init --deploy`, which deploy an application: a service and a Deployment for each role."""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from celeriac.app import Celeriac
from celeriac.errors import ConfigurationError
from celeriac.metrics.__main__ import files as of_monitoring
from celeriac.roles.role import Role
from celeriac.store.role_names import is_built_in, parts_of_lane

_HERE = Path(__file__).parent / "deploy"


def _text(file: str) -> str:
    return (_HERE / f"{file}.txt").read_text()


#: The health checks of containers.
HEALTH = _text("health.py")

#: The maximum length of a service's name: Kubernetes allows 63 characters, of which pods' names add some.
LONGEST = 40

_WORKER = """
  {service}:
    <<: *worker
    command: {command}
    healthcheck:
      <<: *health
      test: [CMD, python, deploy/health.py, worker, {queue}]
"""


def files(app: Celeriac, name: str) -> dict[str, str]:
    """Return each file's text, by its path. `name`: the app for `-A`. Raises ConfigurationError without PyYAML."""
    try:
        from celeriac.cli import manifests
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error}: Kubernetes' manifests need `pip install pyyaml`") from error
    roles = [declared.role for declared in app.roles.own() if not is_built_in(declared.role.name)]
    compose, by_queue = composed(roles, name), _by_queue(roles)
    of_deploy = {file: _text(file).replace("NAME", name) for file in ("Dockerfile", "Dockerfile.dockerignore")}
    of_deploy |= {"health.py": HEALTH} | manifests.files(compose, by_queue) | dict(of_monitoring())
    return {"docker-compose.yml": compose} | {f"deploy/{path}": text for path, text in of_deploy.items()}


def composed(roles: list[Role], name: str) -> str:
    """Return a docker-compose.yml with a worker for each queue, that is, for each role unless several share one."""
    switches = sorted({role.enabled_by for role in roles if role.enabled_by})
    text = _text("docker-compose.yml").replace("NAME", name)
    text = text.replace("    # SWITCHES\n", "".join(f"    {one}: ${{{one}:-true}}\n" for one in switches))
    return text.replace("  # WORKERS\n", "".join(_workers(roles, name)).removeprefix("\n"))


def _workers(roles: list[Role], name: str) -> Iterator[str]:
    for service, queue in _services(roles).items():
        variable = f"{service.replace('-', '_').upper()}_PROCESSES".lstrip("0123456789_")
        command = f"celery -A {name} worker -Q {shlex.quote(queue).replace('$', '$$')} -c ${{{variable}:-2}} -E -l INFO"
        yield _WORKER.format(service=service, command=json.dumps(command), queue=json.dumps(queue))


def _services(roles: list[Role]) -> Mapping[str, str]:
    """Return the queue of each service. A service has the name of its only role, or else of its queue."""
    services: dict[str, str] = {}
    for queue, lanes in sorted(_by_queue(roles).items()):
        only = lanes[0] if len(lanes) == 1 and parts_of_lane(lanes[0])[1] is None else queue
        plain = re.sub(r"[^a-z0-9]+", "-", only.lower()).strip("-")[:LONGEST]
        plain = plain.strip("-") or "worker"
        taken = {*services, *_OTHERS}
        service = next(one for one in (plain, *(f"{plain}-{n}" for n in range(2, 10_000))) if one and one not in taken)
        services[service] = queue
    return services


def _by_queue(roles: list[Role]) -> Mapping[str, list[str]]:
    """Return the lanes of each queue."""
    by_queue: defaultdict[str, list[str]] = defaultdict(list)
    for role in roles:
        for lane in role.lanes[: len(role.queues) or 1]:
            by_queue[lane.queue].append(lane.lane)
    return by_queue


#: Names of services that are not workers.
_OTHERS = ("postgres", "redis", "migrate", "beat", "api")
