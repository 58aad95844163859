"""docker-compose.yml without Docker: each service's command, environment and health check as a local process."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.jail import jailed
from tests.processes import ROOT

_VARIABLE = re.compile(r"\$\{(\w+)(?:(:?)-([^}]*))?\}|\$\$")


#: What python:3.11-slim, on which the image is built, says to every process.
BASE = {"GPG_KEY": "A035C8C19219BA821ECEA86B64E628F8D684696D", "PYTHON_VERSION": "3.11.14", "PYTHON_SHA256": "8d3ed8",
        "LANG": "C.UTF-8"}  # fmt: skip


def image() -> dict[str, str]:
    """The variables of the image."""
    said = re.findall(r"^ENV (.*)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    return BASE | dict(one.split("=", 1) for line in said for one in shlex.split(line))


def read() -> dict[str, Any]:
    with (ROOT / "docker-compose.yml").open() as file:
        return dict(yaml.load(file, yaml.CSafeLoader))


def interpolated(value: Any, environ: Mapping[str, str]) -> Any:
    """As Compose does it: `${NAME:-default}`, `${NAME-default}`, which an empty value replaces as well, and `$$` for a
    dollar sign. Raises KeyError without a default.
    """
    if isinstance(value, dict):
        return {name: interpolated(v, environ) for name, v in value.items()}
    if isinstance(value, list):
        return [interpolated(v, environ) for v in value]

    def replaced(found: re.Match[str]) -> str:
        name, also_if_empty, default = found.groups()
        if name is None:
            return "$"
        if default is None:
            return environ[name]
        return (environ.get(name) or default) if also_if_empty else environ.get(name, default)

    return _VARIABLE.sub(replaced, value) if isinstance(value, str) else value


class Network:
    """Puts the containers on this machine: their names become 127.0.0.1, the ports in the file become others."""

    def __init__(self, names: list[str], ports: Mapping[str, str]) -> None:
        self.names, self.ports = names, ports

    def local(self, text: str) -> str:
        text = re.sub(rf"\b({'|'.join(self.names)}):(?=\d)", "127.0.0.1:", text)
        return re.sub(r"\b\d+\b", lambda number: self.ports.get(number[0], number[0]), text)

    def variable(self, name: str, value: str) -> str:
        return "127.0.0.1" if name.endswith(("_HOST", "_HOSTS")) else self.local(value)


class Service:
    """A service of the file, as its container would run it."""

    def __init__(self, name: str, wanted: Mapping[str, Any], network: Network) -> None:
        self.name, self._wanted, self._network = name, wanted, network

    @property
    def command(self) -> list[str]:
        return shlex.split(self._wanted["command"])

    @property
    def contained(self) -> list[str]:
        """The command, under the rules of its container."""
        return self._jailed(self.command)

    def _jailed(self, command: list[str]) -> list[str]:
        volumes = [volume.partition(":")[2] for volume in self._wanted.get("volumes", ())]
        return jailed(command, database_url=self.environ.get("DATABASE_URL", ""), volumes=volumes)

    @cached_property
    def environ(self) -> dict[str, str]:
        """Nothing of the surroundings but where the programs are, and what the image says."""
        given = {name: self._network.variable(name, str(value)) for name, value in self._wanted["environment"].items()}
        python = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        return image() | given | python | {"PATH": f"{Path(sys.executable).parent}:{os.defpath}"}

    @property
    def health_check(self) -> list[str]:
        kind, *command = self._wanted["healthcheck"]["test"]
        assert kind == "CMD"
        return [self._network.local(part) for part in command]

    def is_healthy(self) -> bool:
        check = subprocess.run(
            self._jailed(self.health_check), cwd=ROOT, env=self.environ, capture_output=True, check=False
        )
        return check.returncode == 0


def services(environ: Mapping[str, str], ports: Mapping[str, str]) -> dict[str, Service]:
    """Those that are built here, by name, with the file's ports changed to these."""
    wanted = interpolated(read()["services"], environ)
    network = Network([*wanted], ports)
    return {name: Service(name, wanted[name], network) for name in wanted if "build" in wanted[name]}


def free_ports() -> dict[str, str]:
    """One for each port of the file, those between containers included."""
    published = (port for service in read()["services"].values() for port in service.get("ports", ()))
    return {port: free_port() for port in (*(port.rpartition(":")[2] for port in published), "8825", "8853", "8700")}


def free_port() -> str:
    """Free for both TCP and UDP."""
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        udp.bind(tcp.getsockname())
        return str(tcp.getsockname()[1])
