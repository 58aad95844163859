"""Prometheus' rules and Grafana's dashboard are made of what the code watches and tells, and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from celeriac.alerts.rules import RULES, Rule
from celeriac.metrics.__main__ import files
from celeriac.metrics.catalogue import METRICS, PREFIX
from celeriac.metrics.grafana import ROWS, expressions
from celeriac.metrics.prometheus import UNSEEN, alert_name, expression, rules
from celeriac.settings import Settings
from tests.processes import ROOT
from tests.pure.test_observability_page import VARIABLES

GROUPS: Any = yaml.safe_load(rules())
ALERTS: list[dict[str, Any]] = GROUPS["groups"][0]["rules"]
EVERY = [*(alert["expr"] for alert in ALERTS), *expressions()]
LABELS = {metric.full_name: {*metric.labels, "instance"} for metric in METRICS if not metric.is_histogram} | {
    f"{metric.full_name}_bucket": {*metric.labels, "instance", "le"} for metric in METRICS if metric.is_histogram
}

WORDS = {
    "max", "min", "sum", "by", "on", "unless", "or", "and", "absent", "increase", "rate", "changes", "offset", "vector",
    "histogram_quantile",
}  # fmt: skip


@pytest.mark.parametrize("name", files())
def test_what_is_committed_is_what_is_made(name: str) -> None:
    """If not: `python -m celeriac.metrics`."""
    assert (ROOT / "deploy" / name).read_text() == files()[name]


def test_each_rule_is_an_alert_with_its_threshold_time_and_severity() -> None:
    settings = Settings()
    assert [alert["alert"] for alert in ALERTS] == [alert_name(rule) for rule in (*RULES, *UNSEEN)]
    for rule, alert in zip((*RULES, *UNSEEN), ALERTS, strict=True):
        assert alert["expr"] == expression(rule, settings)
        assert alert.get("for") == (f"{rule.lasts:.0f}s" if rule.lasts else None)
        assert alert["labels"] == {"severity": rule.severity}
        summary = alert["annotations"]["summary"]
        assert summary.count("{{") == summary.count("}}")
        assert not re.search(r"(?<!\{)\{(?!\{)", summary), "nothing of the engine's own format is left"


def test_thresholds_that_are_settings_are_in_the_expressions() -> None:
    for rule in RULES:
        own = "$threshold" if rule.name != "long_wait" else "celeriac_wait_objective_seconds"
        assert (own in rule.promql) or not isinstance(rule.threshold, str), rule.name


def test_each_alert_has_its_runbook_and_there_is_no_other() -> None:
    pages = {alert["annotations"]["runbook"] for alert in ALERTS}
    assert pages | {"docs/runbooks/README.md"} == {
        str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "runbooks").glob("*.md")
    }
    assert pages == {f"docs/runbooks/{rule.name}.md" for rule in (*RULES, *UNSEEN)}


@pytest.mark.parametrize("rule", [*RULES, *UNSEEN], ids=lambda rule: rule.name)
def test_a_runbook_says_what_it_means_where_to_look_what_cures_it_and_how_to_silence_it(rule: Rule) -> None:
    page = (ROOT / "docs" / "runbooks" / f"{rule.name}.md").read_text()
    title, *parts = re.split(r"^#+ (.*)\n", page, flags=re.MULTILINE)[1::2]
    assert (title, parts) == (rule.name, ["Look", "Cure", "Silence"])
    if isinstance(rule.threshold, str):
        assert f"`{VARIABLES[rule.threshold]}`" in page
    if rule not in UNSEEN:
        assert f"celeriac alerts silence {rule.name} " in page


@pytest.mark.parametrize("written", EVERY)
def test_an_expression_names_only_what_is_told_by_its_own_labels(written: str) -> None:
    plain = re.sub(r'"[^"]*"', '""', written)
    for left, right in ("()", "{}", "[]"):
        assert plain.count(left) == plain.count(right)
    names = set(re.findall(rf"{PREFIX}\w+", plain))
    assert names or written == "vector(1)"
    assert names <= set(LABELS)
    allowed = set().union(*(LABELS[name] for name in names))
    used = set(re.findall(r"(\w+)(?:=~|!=|=)\"", plain))
    for several in re.findall(r"(?:by|on) \(([^)]*)\)", plain):
        used |= set(re.findall(r"\w+", several))
    assert used <= allowed
    rest = re.sub(rf"{PREFIX}\w+|\{{[^}}]*\}}|\[[^\]]*\]|(?:by|on) \([^)]*\)", " ", plain)
    assert set(re.findall(r"[a-z_]+", rest)) <= WORDS


def test_each_panel_says_what_it_shows_and_in_what_unit() -> None:
    panels = [panel for _, row in ROWS for panel in row]
    assert all(panel.description and panel.unit and panel.lines for panel in panels)
    assert len({panel.title for panel in panels}) == len(panels)
    made = json.loads(files()["grafana/celeriac.json"])
    assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"]) == len(panels) + len(ROWS)
    assert {variable["name"] for variable in made["templating"]["list"]} == {"datasource", "role"}
