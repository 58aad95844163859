"""docs/observability.md tells what there is."""

from __future__ import annotations

import re
from dataclasses import fields

from celeriac.alerts.rules import RULES
from celeriac.metrics.catalogue import METRICS
from celeriac.settings import Settings
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "observability.md").read_text()

VARIABLES = {f.name: f.metadata["variable"] for f in fields(Settings) if f.metadata}


def test_its_alerts_are_the_rules() -> None:
    found = re.findall(r"^(\| `\w+` \| .* \| (?:warn|page) \| .*?) \| [^|]* \|$", PAGE, re.MULTILINE)
    expected = []
    for rule in RULES:
        above = f"`{VARIABLES[rule.threshold]}`" if isinstance(rule.threshold, str) else f"{rule.threshold:g}"
        lasts = f"{rule.lasts:g} s " if rule.lasts else ""
        expected.append(f"| `{rule.name}` | {rule.of} | {rule.severity} | {lasts}| {above}")
    assert found == expected


OF = {"sql": "the database", "worker": "a worker", "beat": "a beat", "process": "a worker, a beat"}


def test_its_figures_are_the_catalogue() -> None:
    found = re.findall(r"^\| `celeriac_\w+` \| .* \|$", PAGE, re.MULTILINE)
    assert found == [f"| `{m.full_name}` | {', '.join(m.labels)} | {OF[m.source]} | {m.meaning} |" for m in METRICS]
