"""Duda's sites, in memory: what the documented endpoints read and change, and what they refuse.

As at Duda, an external id may belong to several sites; a domain and a domain prefix belong to one.
Only the error code ResourceNotExist is documented; the others are this stand-in's own.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

SITES_DOMAIN = "multiscreensite.com"
_HOST_NAME = re.compile(r"(?=.{4,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}", re.IGNORECASE)


class Refused(Exception):
    """Answered with 400 and Duda's error object."""

    def __init__(self, error_code: str, message: str) -> None:
        super().__init__(error_code, message)
        self.error_code, self.message = error_code, message


@dataclass
class Site:
    site_name: str
    template_id: int | str
    prefix: str
    properties: dict[str, Any]
    content: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    modified: str = ""
    first_published: str = ""
    last_published: str = ""
    published: int = 0

    @property
    def external_uid(self) -> str | None:
        return self.properties.get("external_uid")

    @property
    def site_domain(self) -> str | None:
        return self.properties.get("site_domain")

    def document(self) -> dict[str, Any]:
        """The documented Site object; properties without a value are left out."""
        default_domain = f"{self.prefix}.{SITES_DOMAIN}"
        full = {
            **self.properties,
            "site_name": self.site_name,
            "template_id": self.template_id,
            "site_default_domain": default_domain,
            "preview_site_url": f"https://preview.{SITES_DOMAIN}/preview/{self.site_name}",
            "canonical_url": f"https://{self.site_domain or default_domain}/",
            "creation_date": self.created,
            "modification_date": self.modified,
            "first_published_date": self.first_published,
            "last_published_date": self.last_published,
            "publish_status": "PUBLISHED" if self.published else "NOT_PUBLISHED_YET",
        }
        return {name: value for name, value in full.items() if value not in ("", None)}


class Sites:
    """All sites and counts of what was done to them; every method is atomic."""

    def __init__(self, templates: Collection[int]) -> None:
        self._templates = frozenset(map(str, templates))
        self._lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._sites: dict[str, Site] = {}
            self._by_prefix: dict[str, Site] = {}
            self._by_domain: dict[str, Site] = {}
            self._by_external_uid: dict[str | None, dict[str, Site]] = defaultdict(dict)
            self._creates: Counter[str] = Counter()

    def create(self, body: Mapping[str, Any]) -> str:
        data = dict(_mapping(body.get("site_data", {}), "site_data"))
        template = body.get("template_id")
        if str(template) not in self._templates:
            raise Refused("ResourceNotExist", f"Template with id '{template}' doesn't exist")
        with self._lock:
            self._check(data, None)
            site = self._new_site(template, body, data)
            self._creates[site.external_uid or ""] += 1
            self._keep(site)
            return site.site_name

    def _new_site(self, template: Any, body: Mapping[str, Any], data: dict[str, Any]) -> Site:
        name = self._free_name(data.get("external_uid") or "")
        prefix = body.get("default_domain_prefix") or name
        self._check_prefix(prefix, None)
        if "lang" in body:
            data["lang"] = body["lang"]
        return Site(name, template, prefix, data, created=_now(), modified=_now())

    def _free_name(self, external_uid: str) -> str:
        """The same for the same run: what a site is called must not depend on which thread came first."""
        for place in itertools.count(self._creates[external_uid]):
            name = hashlib.sha256(f"{external_uid}/{place}".encode()).hexdigest()[:8]
            if name not in self._sites:
                return name
        raise AssertionError("unreachable")

    def _keep(self, site: Site) -> None:
        self._sites[site.site_name] = self._by_prefix[site.prefix] = site
        self._by_external_uid[site.external_uid][site.site_name] = site
        if site.site_domain:
            self._by_domain[site.site_domain] = site

    def get(self, site_name: str) -> dict[str, Any]:
        with self._lock:
            return self._site(site_name).document()

    def names_of(self, external_uid: str) -> list[str]:
        with self._lock:
            return list(self._by_external_uid[external_uid])

    def update(self, site_name: str, body: Mapping[str, Any]) -> None:
        changes = dict(body)
        with self._lock:
            site = self._site(site_name)
            self._check(changes, site)
            prefix = self._check_prefix(changes.pop("default_domain_prefix", site.prefix), site)
            self._by_prefix.pop(site.prefix)
            self._by_domain.pop(site.site_domain or "", None)
            self._by_external_uid[site.external_uid].pop(site.site_name)
            site.prefix, site.modified = prefix, _now()
            site.properties.update(changes)
            self._keep(site)

    def content(self, site_name: str) -> dict[str, Any]:
        with self._lock:
            return dict(self._site(site_name).content)

    def update_content(self, site_name: str, body: Mapping[str, Any]) -> None:
        with self._lock:
            site = self._site(site_name)
            site.content.update(body)
            site.modified = _now()

    def publish(self, site_name: str) -> None:
        with self._lock:
            site = self._site(site_name)
            site.published += 1
            site.last_published = _now()
            site.first_published = site.first_published or site.last_published

    def describe(self) -> dict[str, Any]:
        """All sites, and how many creates took effect per external id."""
        with self._lock:
            return {"sites": [_row(site) for site in self._sites.values()], "creates": dict(self._creates)}

    def _site(self, site_name: str) -> Site:
        if site_name not in self._sites:
            raise Refused("ResourceNotExist", f"Site with alias '{site_name}' doesn't exist")
        return self._sites[site_name]

    def _check(self, properties: Mapping[str, Any], owner: Site | None) -> None:
        external_uid, domain = properties.get("external_uid"), properties.get("site_domain")
        if external_uid is not None and not (isinstance(external_uid, str) and len(external_uid) <= 45):
            raise Refused("InvalidInput", "external_uid must be a string of at most 45 characters")
        if domain is not None and not (isinstance(domain, str) and _HOST_NAME.fullmatch(domain)):
            raise Refused("InvalidInput", f"'{domain}' is not a fully qualified domain name")
        if self._by_domain.get(domain or "", owner) is not owner:
            raise Refused("ResourceAlreadyExist", f"Domain '{domain}' is already in use")

    def _check_prefix(self, prefix: Any, owner: Site | None) -> str:
        if not (isinstance(prefix, str) and 4 <= len(prefix) <= 44):
            raise Refused("InvalidInput", "default_domain_prefix must be between 4 and 44 characters long")
        if self._by_prefix.get(prefix, owner) is not owner:
            raise Refused("ResourceAlreadyExist", f"Domain prefix '{prefix}' is already in use")
        return prefix


def _row(site: Site) -> dict[str, Any]:
    return {
        "site_name": site.site_name,
        "external_uid": site.external_uid,
        "template_id": site.template_id,
        "site_domain": site.site_domain,
        "content": site.content,
        "published": site.published,
    }


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused("InvalidInput", f"{name} must be an object")
    return value


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
