"""`celeriac doctor`: what is wrong with a running system, and what cures it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from celeriac.cli import output
from celeriac.cli.group import PROBLEM, FindApp, command
from celeriac.doctor import Finding, examine

#: Seconds that a command waits for facts from the network that the doctor could do without.
PATIENCE = 5.0


@command
def doctor(find: FindApp, /) -> None:
    """Examine a running system: problems first, each with a cure. It changes nothing."""
    findings = examine(find(), PATIENCE)
    output.tell(findings, _lines(findings))
    raise click.exceptions.Exit(PROBLEM if any(not finding.ok for finding in findings) else 0)


def _lines(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{'✓' if finding.ok else '✕'} {finding.check}: {finding.says}"
        if finding.cure:
            yield f"    {finding.cure}"
        if finding.runbook:
            yield f"    {finding.runbook}"
