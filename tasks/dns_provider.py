"""Who serves an account's domains, and may be told where they point: the build's step "Update DNS".

    DnsError
    ├── DnsUnavailable    timeout, reset, 5xx, 408, 409, 423, 425, an answer that is not the provider's: try again later
    ├── DnsRateLimited    429: try again after `retry_after` seconds
    ├── DnsLockedOut      401, 403, a malformed token, wrong settings: try again when an operator has mended them
    └── DnsRefused        any other error: repeating it changes nothing
        └── NoZone        the domain is served by somebody else

A provider never retries, the task system does. A call that failed as DnsUnavailable may have taken effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal, Protocol, Self

from celeriac import ConfigurationError
from tasks.environment import tell
from tasks.pace import NotNow, RateLimited

Change = Literal["created", "changed", "unchanged"]


class DnsError(Exception):
    """The provider did not do what was asked."""


class DnsUnavailable(DnsError):
    """No usable answer; whether the request took effect is unknown. Worth a retry."""


class DnsRateLimited(DnsError, RateLimited):
    service = "the DNS provider"


class DnsLockedOut(DnsError, NotNow):
    """An operator's or a customer's mistake that each of the account's sites meets: they wait, and look again."""

    retry_after = 600.0


class DnsRefused(DnsError):
    """Permanent."""


class NoZone(DnsRefused):
    """The account has no zone of that domain."""


class DnsProvider(Protocol):
    """With the rights of one account. Raises DnsError."""

    def point(self, domain: str, target: str) -> Change:
        """The domain's CNAME is `target` from now on, and it has no other; what that took. Safe to repeat.

        Raises DnsRefused where that takes a change of what may be another account's.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def provider_of(
    name: str, token: str | None, zone: str | None = None, environ: Mapping[str, str] = os.environ
) -> DnsProvider:
    """The provider of that name with the account's token, or the environment's, which may change `zone` alone.

    Raises DnsLockedOut.
    """
    try:
        return _PROVIDERS[name](token, zone, environ)
    except ConfigurationError as mistake:
        tell(mistake)
        raise DnsLockedOut(str(mistake)) from mistake


def _cloudflare(token: str | None, zone: str | None, environ: Mapping[str, str]) -> DnsProvider:
    from tasks.cloudflare import Cloudflare, CloudflareSettings

    return Cloudflare(CloudflareSettings.from_env(token, zone, environ))


_PROVIDERS: Mapping[str, Callable[[str | None, str | None, Mapping[str, str]], DnsProvider]] = {
    "cloudflare": _cloudflare
}
