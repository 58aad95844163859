"""A client of Cloudflare's API, as far as pointing a custom domain needs it: zones and their DNS records.

Source: Cloudflare API reference, "List Zones", "DNS Records for a Zone" (List, Create, Update DNS Record); Cloudflare
Fundamentals, "API", "Rate limits" (1,200 requests in five minutes, 429 with Retry-After).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx

from tasks.dns_provider import Change, DnsError, DnsLockedOut, DnsRateLimited, DnsRefused, DnsUnavailable, NoZone
from tasks.domains import plain
from tasks.environment import address, positive, require
from tasks.pace import PASSING, retry_after_seconds

#: Kinds of records beside which a name can have no CNAME ("An A, AAAA, or CNAME record with that host already exists").
RIVALS = ("A", "AAAA")

#: Codes of errors: the token is malformed; a record of that name has come meanwhile.
MALFORMED_TOKEN, CAME_MEANWHILE = {6003, 6111}, {81053, 81054, 81057, 81058}


@dataclass(frozen=True)
class CloudflareSettings:
    """token: an API token with Zone Read and DNS Edit. timeout_seconds: for each read or write.

    is_accounts_own: the token is the account's, not the environment's, which sees the zones of all accounts.
    zone: the one that is the account's among those, if it is known.
    """

    token: str = field(repr=False)
    is_accounts_own: bool = False
    zone: str | None = None
    base_url: str = "https://api.cloudflare.com/client/v4"
    timeout_seconds: float = 10.0

    @classmethod
    def from_env(
        cls, token: str | None = None, zone: str | None = None, environ: Mapping[str, str] = os.environ
    ) -> CloudflareSettings:
        """Reads CLOUDFLARE_*; CLOUDFLARE_API_TOKEN where the account has no token. Raises ConfigurationError."""
        is_own = bool(token)
        token = token or environ.get("CLOUDFLARE_API_TOKEN", "")
        require(bool(token), "CLOUDFLARE_API_TOKEN is empty: set it, or the token in the account's row of dns_accounts")
        require(token.isascii() and token.isprintable(), "CLOUDFLARE_API_TOKEN, or an account's, is no API token")
        return cls(
            token=token,
            is_accounts_own=is_own,
            zone=plain(zone) if zone else None,
            base_url=address("CLOUDFLARE_BASE_URL", cls.base_url, environ=environ),
            timeout_seconds=positive("CLOUDFLARE_TIMEOUT_SECONDS", cls.timeout_seconds, environ=environ),
        )


class Cloudflare:
    """A `DnsProvider`."""

    def __init__(self, settings: CloudflareSettings) -> None:
        self._settings = settings
        self._client = httpx.Client(
            base_url=settings.base_url, timeout=settings.timeout_seconds,
            headers={"Authorization": f"Bearer {settings.token}", "User-Agent": "celeriac-instasites"},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def point(self, domain: str, target: str) -> Change:
        """Not proxied, so that name servers show the CNAME. Other records of the name are not touched.

        The environment's token makes and changes records in the account's own zone alone: elsewhere any account could
        take over names of another one.
        """
        domain, target = plain(domain), plain(target)
        zone = self._zone_of(domain)
        records = f"zones/{zone.id}/dns_records"
        found = _rows(self._ask("GET", records, params={"name": domain}))
        if rivals := sorted({record["type"] for record in found if record["type"] in RIVALS}):
            raise DnsRefused(f"{domain} has a record of type {' and '.join(rivals)}: remove it, as it bars a CNAME")
        wanted = {"content": target, "proxied": False}
        existing = next((record for record in found if record["type"] == "CNAME"), None)
        is_ours = self._settings.is_accounts_own or zone.name == self._settings.zone
        is_right = existing is not None and plain(existing["content"]) == target
        if existing is not None and is_right and not (is_ours and existing.get("proxied", False)):
            return "unchanged"
        if not is_ours:
            raise DnsRefused(_somebody_s(domain, zone.name))
        if existing is None:
            self._ask("POST", records, json={"type": "CNAME", "name": domain, "ttl": 1} | wanted)  # 1 is automatic
            return "created"
        self._ask("PATCH", f"{records}/{existing['id']}", json=wanted)
        return "changed"

    def _zone_of(self, domain: str) -> _Zone:
        """The closest zone above a domain, or its own. Raises NoZone."""
        for name in _from_within(domain):
            for zone in _rows(self._ask("GET", "zones", params={"name": name})):
                return _Zone(str(zone["id"]), name)
        raise NoZone(f"the account has no zone of {domain} at Cloudflare")

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        try:
            response = self._client.request(method, path, **more)
        except httpx.RequestError as error:
            raise DnsUnavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
        return _result(response)


class _Zone(NamedTuple):
    id: str
    name: str


def _somebody_s(domain: str, zone: str) -> str:
    return (
        f"{domain} is in the zone {zone}, which may be another account's: with CLOUDFLARE_API_TOKEN, the token of all "
        "accounts, nothing is made or changed there. If it is this account's, say so in its row of dns_accounts: "
        f"set zone to {zone}, or token to the account's own"
    )


def _from_within(domain: str) -> Iterator[str]:
    """The domain, and those above it, the closest first; no top-level domain."""
    labels = domain.split(".")
    return (".".join(labels[n:]) for n in range(len(labels) - 1))


def _result(response: httpx.Response) -> Any:
    """What the envelope has in it. Raises DnsError."""
    status = response.status_code
    if status == 429:
        raise DnsRateLimited(retry_after_seconds(response.headers.get("Retry-After"), datetime.now(UTC)))
    asked = f"{response.request.method} {response.request.url.path}"
    envelope = _envelope(response)
    if status >= 500 or status in PASSING or envelope is None:
        raise DnsUnavailable(f"{asked}: Cloudflare answered {status}" + " without readable JSON" * (envelope is None))
    if not response.is_success or envelope.get("success") is not True:
        raise _refusal(asked, status, envelope.get("errors"))
    return envelope.get("result")


def _envelope(response: httpx.Response) -> Mapping[str, Any] | None:
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) and "success" in body else None


def _refusal(asked: str, status: int, errors: Any) -> DnsError:
    told = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    codes = {error.get("code") for error in told}
    says = "; ".join(f"{error.get('code')} {error.get('message')}" for error in told) or "no error told"
    if status in (401, 403) or codes & MALFORMED_TOKEN:
        return DnsLockedOut(f"{asked}: Cloudflare refused with {status} {says}; check the token and what it may do")
    kind = DnsUnavailable if codes & CAME_MEANWHILE else DnsRefused
    return kind(f"{asked}: Cloudflare refused with {status} {says}")


def _rows(result: Any) -> list[dict[str, Any]]:
    if isinstance(result, list) and all(isinstance(row, dict) and "id" in row for row in result):
        return result
    raise DnsUnavailable("Cloudflare's answer is no list")
