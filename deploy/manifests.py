"""Kubernetes' manifests and the health checks of the example, by what `celeriac init --deploy` makes any application's.

    python deploy/manifests.py     writes deploy/kubernetes/base, deploy/kubernetes/components and deploy/health.py anew

What the platform has to add stands in deploy/kubernetes/README.md: a Secret, an image, a Postgres and a Redis.
"""

from __future__ import annotations

from pathlib import Path

from celeriac.cli import deployment, manifests

ROOT = Path(__file__).resolve().parent.parent


def files() -> dict[Path, str]:
    """What is committed, and its text."""
    made = manifests.files((ROOT / "docker-compose.yml").read_text(), {}) | {"health.py": deployment.HEALTH}
    return {ROOT / "deploy" / name: text for name, text in made.items()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
