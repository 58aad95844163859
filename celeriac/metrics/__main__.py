"""Write Prometheus' rules and Grafana's dashboard: `python -m celeriac.metrics`, and a folder for them if wanted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from celeriac.metrics.grafana import dashboard
from celeriac.metrics.prometheus import rules


def files() -> Mapping[str, str]:
    """Return the files' contents by their paths below the folder."""
    return {"prometheus/celeriac.rules.yml": rules(), "grafana/celeriac.json": dashboard()}


def main(folder: Path) -> None:
    for name, content in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        print(path)


if __name__ == "__main__":
    main(Path(*(sys.argv[1:2] or ["deploy"])))
