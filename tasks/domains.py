"""Where a customer's domain points: its CNAME record (RFC 1034, 3.6.2).

    DomainLookupFailed    no name server gave an answer (timeout, SERVFAIL, refusal): try again later

Name servers are those given, else the one in DNS_NAMESERVER ("host:port"), else the system's.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

import dns.exception
import dns.name
import dns.rdtypes.ANY.CNAME
import dns.resolver

TIMEOUT = 5.0  # seconds for a whole look-up, retries over all name servers included
DNS_PORT = 53


class DomainLookupFailed(Exception):
    """No answer, so nothing is known about the domain. Worth a retry."""


def cname_target(
    domain: str, *, nameservers: Sequence[str] | None = None, port: int = DNS_PORT, timeout: float = TIMEOUT
) -> str | None:
    """The host `domain`'s CNAME names, in lower case without final dot; None if there is no CNAME.

    nameservers: IP addresses, all asked on `port`. timeout: seconds. One record is read, no chain followed.
    Raises DomainLookupFailed, and ValueError when `domain` is no domain name or DNS_NAMESERVER is malformed.
    """
    name = _name(domain)
    try:
        answer = _resolver(nameservers, port, timeout).resolve(name, "CNAME", lifetime=timeout, search=False)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return None
    except (dns.exception.DNSException, OSError) as error:
        raise DomainLookupFailed(f"{domain}: {error}") from error
    return _target(answer)


def points_to(
    domain: str,
    host: str,
    *,
    nameservers: Sequence[str] | None = None,
    port: int = DNS_PORT,
    timeout: float = TIMEOUT,
) -> bool:
    """Whether `domain`'s CNAME is `host`, whatever their case and final dots. Errors as `cname_target`."""
    return cname_target(domain, nameservers=nameservers, port=port, timeout=timeout) == plain(host)


def nameserver_from_env(environ: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """DNS_NAMESERVER as (IP address, port), a host name resolved; None if unset. Raises ValueError."""
    text = environ.get("DNS_NAMESERVER", "")
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise ValueError(f"DNS_NAMESERVER is {text!r}: set it to host:port, such as 127.0.0.1:5353")
    return _address(host.strip("[]")), int(port)


def _address(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)[0][4][0])
    except OSError as error:
        raise DomainLookupFailed(f"the name server {host} of DNS_NAMESERVER is not found: {error}") from error


def _resolver(nameservers: Sequence[str] | None, port: int, timeout: float) -> dns.resolver.Resolver:
    if nameservers is None:
        configured = nameserver_from_env()
        if configured is None:
            return _patient(dns.resolver.Resolver(), timeout)
        nameservers, port = [configured[0]], configured[1]
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = list(nameservers), port
    return _patient(resolver, timeout)


def _patient(resolver: dns.resolver.Resolver, timeout: float) -> dns.resolver.Resolver:
    """Leaves time to ask again, as a UDP packet may be lost."""
    resolver.timeout = timeout / 2
    return resolver


def _name(domain: str) -> dns.name.Name:
    try:
        name = dns.name.from_text(domain)
    except (dns.exception.DNSException, UnicodeError) as error:
        raise ValueError(f"{domain!r} is no domain name: {error}") from None
    if name == dns.name.root:
        raise ValueError(f"{domain!r} is no domain name: give one such as www.example.com")
    return name


def _target(answer: dns.resolver.Answer) -> str | None:
    for record in answer:
        if isinstance(record, dns.rdtypes.ANY.CNAME.CNAME):
            return plain(record.target.to_text())
    return None


def plain(host: str) -> str:
    """As it is compared: in lower case, without a final dot."""
    return host.rstrip(".").lower()
