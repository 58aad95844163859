"""Reads what happened: from the tables, from the files, and from what the sandbox's pages saw."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, text

from demo.thumbnails.plan import Case
from demo.thumbnails.verdicts import Evidence, Site, Size
from sandbox import Sandbox

Cases = Mapping[tuple[str, int], Case]

SITES = text("""
WITH sites AS (
    SELECT 'agency_website' AS kind, id, details, thumbnail_build_in_progress AS in_progress, xmin FROM agency_websites
    UNION ALL
    SELECT 'instasite', id, details, thumbnail_build_in_progress, xmin FROM instasites
)
SELECT sites.kind, sites.id, sites.details -> 'thumbnails' AS thumbnails, in_progress, sites.xmin::text AS version,
    task.status, task.retry_count + 1 AS attempts
FROM sites LEFT JOIN LATERAL (
    SELECT status, retry_count FROM worker_tasks
    WHERE role = 'build_thumbnail' AND unique_key = sites.kind || ':' || sites.id ORDER BY worker_tasks.id DESC LIMIT 1
) task ON true
ORDER BY 1, 2
""")

PROGRESS = text("""
SELECT count(*) FILTER (WHERE role = 'build_thumbnail' AND status = 'completed') AS done,
    count(*) FILTER (WHERE role = 'build_thumbnail' AND status = 'failed') AS failed,
    count(*) FILTER (WHERE waits_for = 'time') AS retrying,
    count(*) FILTER (WHERE status IN ('pending', 'claimed', 'running')) AS unfinished
FROM demo_tasks
""")

RENDERING = text("""
SELECT worker_pid, kwargs ->> 'kind', (kwargs ->> 'site_id')::bigint FROM worker_tasks
WHERE role = 'build_thumbnail' AND status = 'running' ORDER BY started_at LIMIT 1
""")

RESETS = text("SELECT sites, CAST(sum(reset) AS integer) AS reset FROM thumbnail_checks GROUP BY sites ORDER BY sites")


def versions(connection: Connection) -> dict[tuple[str, int], str]:
    """Which transaction wrote each site last."""
    return {(row.kind, row.id): row.version for row in connection.execute(SITES)}


def gather(
    connection: Connection, outside: Sandbox, cases: Cases, before: Mapping[tuple[str, int], str],
    wanted: Mapping[str, Size], killed: list[tuple[str, int]], old: int, url: str,
) -> Evidence:  # fmt: skip
    rows = connection.execute(SITES).all()
    sites = [_site(row, cases[row.kind, row.id], before[row.kind, row.id]) for row in rows]
    reset = {row.sites: row.reset for row in connection.execute(RESETS)}
    shown = {address for row in rows for address in (row.thumbnails or {}).values() if _is_ours(address)}
    lying = {path.as_uri() for path in Path(urlsplit(url).path).rglob("*") if path.is_file()}
    return Evidence(sites, wanted, reset, outside.previews.visits, killed, old, sorted(lying - shown))


def _site(row: Any, case: Case, version: str) -> Site:
    files = {name: _read(address) for name, address in (row.thumbnails or {}).items() if _is_ours(address)}
    return Site(
        kind=row.kind, id=row.id, case=case.name, fate=case.fate, in_progress=bool(row.in_progress),
        changed=row.version != version, sizes={name: _size(file) for name, file in files.items()} or None,
        digest=sha256(files["desktop"]).hexdigest() if "desktop" in files else None, task=row.status,
        attempts=row.attempts or 0,
    )  # fmt: skip


def _is_ours(address: str | None) -> bool:
    return (address or "").startswith("file://")


def _read(address: str) -> bytes:
    with open(urlsplit(address).path, "rb") as file:
        return file.read()


def _size(png: bytes) -> Size:
    return struct.unpack(">II", png[16:24])
