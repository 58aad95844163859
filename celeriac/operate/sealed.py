"""Signatures of remote control commands: HMAC-SHA-256 of command, recipients and time, by a key not in Redis."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from kombu.utils.json import dumps

#: The argument that carries a command's signature.
SEAL: Final = "celeriac_seal"

#: The greatest age of a signature, and how far clocks may differ (seconds).
FRESH: Final = 60.0


def seal(key: str, command: str, arguments: Mapping[str, Any], destination: Collection[str] | None) -> dict[str, Any]:
    """Sign a command: its arguments, its recipients, and the time."""
    to = None if destination is None else sorted(destination)
    stamp = {"at": time.time(), "nonce": secrets.token_hex(8), "to": to}
    return stamp | {"mac": _mac(key, command, arguments, stamp)}


class Seals:
    """The check of signatures; each is accepted once in this worker, and none that is older than the worker.

    What the worker before it accepted is in no memory. The check is as good as the clocks: a sender whose clock is
    ahead signs for a time in which there may be another worker.
    """

    def __init__(self, key: str, hostname: str) -> None:
        self.key, self.hostname = key, hostname
        self.began = time.time()
        self.seen: dict[str, float] = {}

    def wrong(self, command: str, arguments: Mapping[str, Any], signature: Any) -> str | None:
        """Return what is wrong with the signature, None if it is valid."""
        if not isinstance(signature, Mapping):
            return f"{command}: refused, it is not signed; set CELERIAC_REMOTE_CONTROL_KEY where it is sent"
        stamp, now = {name: signature.get(name) for name in ("at", "nonce", "to")}, time.time()
        mac = str(signature.get("mac"))
        if not hmac.compare_digest(mac.encode(errors="replace"), _mac(self.key, command, arguments, stamp).encode()):
            return f"{command}: refused, it is signed with another key"
        if stamp["to"] is not None and self.hostname not in stamp["to"]:
            return f"{command}: refused, it was signed for others"
        self.seen = {one: at for one, at in self.seen.items() if at > now - 2 * FRESH}
        if abs(now - float(stamp["at"] or 0)) > FRESH or mac in self.seen:
            return f"{command}: refused, its signature is not of the last {FRESH:g} s, or was used"
        if float(stamp["at"] or 0) < self.began:
            return f"{command}: refused, its signature is from before this worker began"
        self.seen[mac] = now
        return None


def _mac(key: str, command: str, arguments: Mapping[str, Any], stamp: Mapping[str, Any]) -> str:
    said = dumps([command, dict(arguments), dict(stamp)], sort_keys=True)
    return hmac.new(key.encode(), said.encode(), hashlib.sha256).hexdigest()
