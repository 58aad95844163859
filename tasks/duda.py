"""A client of Duda's Partner API, as far as building InstaSites needs it.

The client never retries, the task system does. A call that failed as DudaUnavailable may have taken effect.

Source: Duda Developer Documentation, "Partner API Reference" (Introduction, Sites, Site Content).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypedDict, cast
from urllib.parse import quote

import httpx

from tasks.duda_answers import DudaRefused, DudaUnavailable, meaning_of, only_name_in, site_name_in
from tasks.environment import address, positive, required
from tasks.pace import Pace

LONGEST_EXTERNAL_ID = 45


@dataclass(frozen=True)
class DudaSettings:
    """Where Duda is and how hard it may be asked.

    base_url: with `/api`, e.g. https://api.duda.co/api, or https://api-sandbox.duda.co/api.
    timeout_seconds, connect_timeout_seconds: for each read or write, and for connecting.
    requests_per_second: spacing per `Duda` object. Duda refuses more than 10 and recommends 8 *per account*,
    so share that figure out among the processes that run.
    """

    user: str
    password: str = field(repr=False)
    base_url: str = "https://api.duda.co/api"
    timeout_seconds: float = 30.0
    connect_timeout_seconds: float = 5.0
    requests_per_second: float = 8.0

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> DudaSettings:
        """Reads DUDA_*; what is unset keeps its default. Raises ConfigurationError."""
        return cls(
            user=required("DUDA_API_USER", "the API user of the Duda account", environ=environ),
            password=required("DUDA_API_PASSWORD", "the API password", environ=environ),
            base_url=address("DUDA_BASE_URL", cls.base_url, environ=environ),
            timeout_seconds=positive("DUDA_TIMEOUT_SECONDS", cls.timeout_seconds, environ=environ),
            connect_timeout_seconds=positive(
                "DUDA_CONNECT_TIMEOUT_SECONDS", cls.connect_timeout_seconds, environ=environ
            ),
            requests_per_second=positive("DUDA_REQUESTS_PER_SECOND", cls.requests_per_second, environ=environ),
        )


class Site(TypedDict, total=False):
    """Duda's Site object ("Sites", Site Object), as far as it is used; absent properties have no value."""

    site_name: str
    external_uid: str
    template_id: int
    lang: str
    site_domain: str
    site_default_domain: str
    preview_site_url: str
    canonical_url: str
    publish_status: str


class Duda:
    """One connection pool and one pace, shareable among threads; open it after a fork, not before.

    Every method raises DudaError (see `duda_answers`), and ValueError before asking Duda when an argument cannot
    be right. `pace` replaces the one made from the settings.
    """

    def __init__(self, settings: DudaSettings, *, pace: Pace | None = None) -> None:
        self._pace = pace or Pace(settings.requests_per_second)
        self._client = httpx.Client(
            base_url=settings.base_url,
            auth=(settings.user, settings.password),
            timeout=httpx.Timeout(settings.timeout_seconds, connect=settings.connect_timeout_seconds),
            headers={"User-Agent": "celeriac-instasites"},  # "All endpoints require a user-agent header."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def ensure_site(self, template_id: int | str, external_id: str) -> str:
        """The name of the one site with this external id, created if there is none. Safe to repeat.

        Duda lets sites share an external id, but no two a domain prefix. A prefix derived from the external id makes
        Duda refuse the second create, should an earlier one, believed lost, arrive between look-up and create.
        """
        existing = self.find_site(external_id)
        if existing is not None:
            return existing
        try:
            return self.create_site(template_id, external_id, default_domain_prefix=domain_prefix_for(external_id))
        except DudaRefused:
            existing = self.find_site(external_id)
            if existing is None:
                raise
            return existing

    def create_site(self, template_id: int | str, external_id: str, *, default_domain_prefix: str | None = None) -> str:
        """Create Site ("Sites"): a new site's name. Not safe to repeat: see `ensure_site`.

        default_domain_prefix: 4 to 44 characters, unique in all of Duda. Duda allows 60 creates a minute.
        """
        _check_external_id(external_id)
        body: dict[str, object] = {"template_id": template_id, "site_data": {"external_uid": external_id}}
        if default_domain_prefix is not None:
            body["default_domain_prefix"] = default_domain_prefix
        return site_name_in(self._ask("POST", "create", body))

    def get_site(self, site_name: str) -> Site:
        """Get Site ("Sites")."""
        site = self._ask("GET", _segment(site_name))
        site_name_in(site)
        return cast(Site, site)

    def find_site(self, external_id: str) -> str | None:
        """Get Site by External ID ("Sites"): the site's name; of several always the same one; None if none.

        What Duda answers for "none" is not documented: an empty list and ResourceNotExist are both taken so.
        """
        _check_external_id(external_id)
        try:
            names = self._ask("GET", f"byexternalid/{_segment(external_id)}")
        except DudaRefused as refusal:
            if refusal.error_code == "ResourceNotExist":
                return None
            raise
        return only_name_in(names, external_id)

    def update_content(self, site_name: str, content: Mapping[str, object]) -> None:
        """Update Content Library ("Site Content"): merges the given fields; live with the next publish."""
        self._ask("POST", f"{_segment(site_name)}/content", content)

    def update_site(self, site_name: str, properties: Mapping[str, object]) -> None:
        """Update Site ("Sites"): site_domain, external_uid, lang, site_seo, force_https, …"""
        self._ask("POST", f"update/{_segment(site_name)}", properties)

    def set_domain(self, site_name: str, domain: str) -> None:
        """Update Site ("Sites") with `site_domain`, a fully qualified domain name unique in all of Duda."""
        self.update_site(site_name, {"site_domain": domain})

    def publish(self, site_name: str) -> None:
        """Publish Site ("Sites"): puts the current state live; the first time, Duda starts charging.

        Publishing again overwrites what is live. Duda allows 20 publishes a minute.
        """
        self._ask("POST", f"publish/{_segment(site_name)}")

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        self._pace.wait()
        try:
            response = self._client.request(method, f"sites/multiscreen/{path}", json=body)
        except httpx.RequestError as error:
            raise DudaUnavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
        return meaning_of(response)


def domain_prefix_for(external_id: str) -> str:
    """A domain prefix (21 characters) that is the same for the same external id and no other."""
    return f"site-{hashlib.sha256(external_id.encode()).hexdigest()[:16]}"


def _segment(value: str) -> str:
    _require(value not in ("", ".", ".."), f"{value!r} names no site: pass a site name or an external id")
    return quote(value, safe="")


def _check_external_id(external_id: str) -> None:
    _require(
        0 < len(external_id) <= LONGEST_EXTERNAL_ID,
        f"external id {external_id!r} must have 1 to {LONGEST_EXTERNAL_ID} characters: Duda stores no more",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
