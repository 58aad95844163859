"""Prometheus' alert rules, made of the same list as the engine's own. They work when all our processes are gone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from celeriac.alerts.rules import RULES, RUNBOOKS, Rule
from celeriac.settings import Settings

HEAD = """\
# Made by `python -m celeriac.metrics` of the rules in celeriac/alerts/rules.py: change them there. Thresholds are the
# defaults of CELERIAC_ALERT_…; figures of several API servers are put together by max.
"""

#: The rules for what only an outside observer can see.
UNSEEN = (
    Rule(
        name="figures_missing", of="Prometheus", measure="", threshold=0, severity="page", lasts=120,
        says="no API server tells figures: it is down, or Postgres does not answer it",
        promql="absent(celeriac_scrape_ok) or max(celeriac_scrape_ok) == 0",
    ),
    Rule(
        name="figures_unread", of="figures", measure="", threshold=0, lasts=120,
        says="no API server can read them, the others are read: Prometheus' alerts about them are blind",
        promql="min by (group) (celeriac_group_unread) == 1 and on () max(celeriac_scrape_ok) == 1",
    ),
)  # fmt: skip

FORMAT = re.compile(r"\{(value|threshold):([^}]*)\}")


def rules() -> str:
    """Return the file, as YAML: its values are JSON, which is YAML as well."""
    lines = [HEAD.rstrip(), "groups:", "  - name: celeriac", "    rules:"]
    for rule in (*RULES, *UNSEEN):
        lines += (f"      {line}" for line in _lines(rule, Settings()))
    return "\n".join(lines) + "\n"


def alert_name(rule: Rule) -> str:
    return "Celeriac" + "".join(word.capitalize() for word in rule.name.split("_"))


def expression(rule: Rule, settings: Settings) -> str:
    return rule.promql.replace("$threshold", f"{rule.limit(settings):.16g}")


def _lines(rule: Rule, settings: Settings) -> Iterator[str]:
    yield f"- alert: {alert_name(rule)}"
    yield f"  expr: {json.dumps(expression(rule, settings))}"
    if rule.lasts:
        yield f"  for: {rule.lasts:.0f}s"
    yield "  labels:"
    yield f"    severity: {rule.severity}"
    yield "  annotations:"
    yield f"    summary: {json.dumps(summary(rule, settings))}"
    yield f"    runbook: {RUNBOOKS}/{rule.name}.md"


def summary(rule: Rule, settings: Settings) -> str:
    """Return the rule's sentence, in Prometheus' templates."""
    label = re.search(r"by \((\w+)\)", rule.promql)
    subject = f"{{{{ $labels.{label[1]} }}}}" if label else rule.of
    if label and not rule.of.endswith(label[1]):
        subject = f"{rule.of} of {subject}"
    sentence = FORMAT.sub(lambda match: _value(match[1], match[2], rule.limit(settings)), rule.says)
    return f"{subject}: {sentence}"


_PRINTF: Mapping[str, str] = {
    ".0f": '{{ $value | printf "%.0f" }}', ".1f": '{{ $value | printf "%.1f" }}',
    ".1%": "{{ $value | humanizePercentage }}",
}  # fmt: skip


def _value(which: str, form: str, threshold: float) -> str:
    return format(threshold, form) if which == "threshold" else _PRINTF[form]
