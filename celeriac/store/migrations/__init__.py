"""The engine's own migrations, with a version table of their own (celeriac.version)."""

from __future__ import annotations

from pathlib import Path

ENGINE_VERSIONS = Path(__file__).parent / "versions"
