"""Cloudflare's API, as far as pointing a domain needs it; its CNAMEs are what the sandbox's name server answers.

    GET   /client/v4/zones?name=                          the zones a token may see
    GET   /client/v4/zones/<zone>/dns_records?name=&type= records
    POST  /client/v4/zones/<zone>/dns_records             a new one
    PATCH /client/v4/zones/<zone>/dns_records/<record>    other content

Source: Cloudflare API reference, "List Zones" and "DNS Records for a Zone".
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from sandbox.names import Names
from sandbox.stand_ins import Asked, Reply, Request

_RECORDS = re.compile(r"/client/v4/zones/([0-9a-f]{32})/dns_records(?:/([0-9a-f]{32}))?")

#: Of these a name has one, or several of the first two.
ONE_A_NAME = ("A", "AAAA", "CNAME")

TOKEN = "sandbox-cloudflare-token"


@dataclass(frozen=True)
class Record:
    id: str
    type: str
    name: str
    content: str
    ttl: int = 1
    proxied: bool = False


class Cloudflare:
    """Zones by token, records by zone; every method is atomic. Ids follow from names."""

    name, prefix = "cloudflare", "/client/v4/"

    def __init__(self, names: Names) -> None:
        self._lock, self._names = threading.RLock(), names
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._zones: dict[str, dict[str, str]] = {}
            self._records: dict[str, dict[str, Record]] = {}

    def open_zone(self, name: str, token: str = TOKEN) -> None:
        """Seen, and changed, by whoever has the token."""
        with self._lock:
            self._zones.setdefault(token, {})[_id(name)] = name
            self._records.setdefault(_id(name), {})

    def put(self, zone: str, kind: str, name: str, content: str, *, proxied: bool = False) -> None:
        """A record as the zone's owner made it."""
        with self._lock:
            self._keep(_id(zone), Record(_id(f"{kind} {name}"), kind, name, content, proxied=proxied))

    def environ(self, http_url: str) -> dict[str, str]:
        return {"CLOUDFLARE_BASE_URL": f"{http_url}/client/v4", "CLOUDFLARE_API_TOKEN": TOKEN}

    def describe(self) -> Any:
        """The records of each zone."""
        with self._lock:
            zones = {zone: name for seen in self._zones.values() for zone, name in seen.items()}
            return {name: [asdict(record) for record in self._records[zone].values()] for zone, name in zones.items()}

    def answer(self, request: Request) -> Asked | Reply:
        scheme, _, token = (request.headers.get("Authorization") or "").partition(" ")
        if scheme != "Bearer" or (token not in self._zones and token != TOKEN):
            return _refused(403, 9109, "Invalid access token")
        asked = {name: values[0] for name, values in parse_qs(request.query).items()}
        if request.path == "/client/v4/zones" and request.method == "GET":
            return Asked("zones", asked.get("name", ""), partial(self._list_zones, token, asked))
        found = _RECORDS.fullmatch(request.path)
        if found is None or found[1] not in self._zones.get(token, {}):
            return _refused(404, 7003, "Could not route to the given object identifier")
        return self._of_records(request, found[1], found[2], asked)

    def _of_records(self, request: Request, zone: str, record: str | None, asked: dict[str, str]) -> Asked | Reply:
        if request.method == "GET" and record is None:
            return Asked("records", asked.get("name", ""), partial(self._list_records, zone, asked))
        try:
            body = json.loads(request.body)
            named = str(body.get("name", record))
        except (ValueError, AttributeError):
            return _refused(400, 9207, "Request body is invalid.")
        if request.method == "POST" and record is None:
            return Asked("create_record", named, partial(self._create, zone, body))
        if request.method == "PATCH" and record is not None:
            return Asked("update_record", named, partial(self._update, zone, record, body))
        return _refused(405, 10405, "Method not allowed for this authentication scheme")

    def _list_zones(self, token: str, asked: dict[str, str]) -> Reply:
        with self._lock:
            seen = list(self._zones.get(token, {}).items())
        return _done([{"id": i, "name": n, "status": "active"} for i, n in seen if asked.get("name", n) == n])

    def _list_records(self, zone: str, asked: dict[str, str]) -> Reply:
        with self._lock:
            records = [asdict(record) for record in self._records[zone].values()]
        return _done([record for record in records if all(record.get(k) == v for k, v in asked.items())])

    def _create(self, zone: str, body: dict[str, Any]) -> Reply:
        try:
            kind, name = str(body["type"]), str(body["name"])
            made = Record(
                _id(f"{kind} {name}"), kind, name, str(body["content"]), int(body["ttl"]), bool(body["proxied"])
            )
        except (KeyError, ValueError):
            return _refused(400, 9005, "Content for the record is invalid or missing.")
        with self._lock:
            if any(record.name == name and record.type in ONE_A_NAME for record in self._records[zone].values()):
                return _refused(400, 81053, "An A, AAAA, or CNAME record with that host already exists.")
            return _done(asdict(self._keep(zone, made)))

    def _update(self, zone: str, record: str, body: dict[str, Any]) -> Reply:
        with self._lock:
            if record not in self._records[zone]:
                return _refused(404, 81044, "Record does not exist.")
            changes = {name: body[name] for name in ("content", "ttl", "proxied") if name in body}
            return _done(asdict(self._keep(zone, replace(self._records[zone][record], **changes))))

    def _keep(self, zone: str, record: Record) -> Record:
        """What is proxied, name servers show as addresses."""
        self._records[zone][record.id] = record
        shown = record.content if record.type == "CNAME" and not record.proxied else None
        self._names.update({record.name: shown})
        return record


def _done(result: Any) -> Reply:
    return Reply(200, {"success": True, "errors": [], "messages": [], "result": result})


def _refused(status: int, code: int, message: str) -> Reply:
    errors = [{"code": code, "message": message}]
    return Reply(status, {"success": False, "errors": errors, "messages": [], "result": None})


def _id(text: str) -> str:
    """As long as Cloudflare's."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
