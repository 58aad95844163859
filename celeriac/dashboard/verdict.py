"""The overview's first lines: what is wrong, the worst first, and a headline that says so if that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celeriac.alerts.judgement import Judgement
from celeriac.dashboard import words
from celeriac.dashboard.first import FirstStep
from celeriac.dashboard.reading import Content
from celeriac.insights.history.alerts import Look, damage

#: Maximum number of rules that the headline names among those that the last check could not read.
NAMED = 3


@dataclass(frozen=True, slots=True)
class Concern:
    """A problem of one subject. `since`: when its alert began to fire; None: it has not lasted long enough for that."""

    name: str
    subject: str
    severity: str
    sentence: str
    cure: str
    runbook: str | None
    since: datetime | None
    silenced_until: datetime | None


def concerns(panels: Mapping[str, Content]) -> list[Concern]:
    """Return what is wrong now, the worst first, silenced problems last. The application's own rules, and rules that
    cannot be read now, have the result of the last check.
    """
    judgement = _judgement(panels)
    firing = {(alert["name"], alert["subject"]): alert for alert in panels["alerts"].value or ()}
    wrong = [
        _concern(firing.get((one.name, one.subject), {}), one.name, one.subject, one.severity, one.says, one.cure,
                 one.runbook)
        for one in judgement.wrong
    ] + [
        _concern(alert, name, subject, alert["severity"], words.alert(alert))
        for (name, subject), alert in firing.items() if name not in judgement.judged
    ]  # fmt: skip
    return sorted(wrong, key=lambda one: (one.silenced_until is not None, damage(one.name, one.severity)))


def _concern(
    alert: Mapping[str, Any], name: str, subject: str, severity: str, sentence: str, cure: str = "",
    runbook: str | None = None,
) -> Concern:  # fmt: skip
    since, silenced = alert.get("firing_since"), alert.get("silenced_until")
    return Concern(name, subject, severity, sentence, cure, runbook, since, silenced)


def by_rule(wrong: Iterable[Concern]) -> list[list[Concern]]:
    """Group the problems by rule, in the order of each group's worst one."""
    groups: dict[str, list[Concern]] = {}
    for one in wrong:
        groups.setdefault(one.name, []).append(one)
    return list(groups.values())


def soon(panels: Mapping[str, Content]) -> list[Mapping[str, Any]]:
    """Return the pending alerts of rules that cannot be judged now; those of other rules are among the problems."""
    known = _judgement(panels).judged
    return [one for one in panels["pending"].value or () if one["name"] not in known]


def verdict(panels: Mapping[str, Content], wrong: Sequence[Concern], first: Sequence[FirstStep], late: float) -> str:
    """Return the headline. `late`: seconds after which a check of the alerts is overdue."""
    unknown = list(_unknown(panels, late))
    if wrong:
        more = f", and {words.plural(len(wrong) - 1, 'thing')} more" if len(wrong) > 1 else ""
        worst = words.sentence(f"{wrong[0].name.replace('_', ' ')}: {wrong[0].subject}").rstrip(".")
        return "; ".join([worst + more, *unknown])
    if step := next((step for step in first if not step.is_done), None):
        return "; ".join([f"Nothing has run yet: {step.does.partition(':')[0]}", *unknown])
    if unknown:
        return f"Not known: {'; '.join(unknown)}"
    coming = len(soon(panels))
    return f"{words.plural(coming, 'thing')} may need you soon" if coming else "All is well"


def _unknown(panels: Mapping[str, Content], late: float) -> Iterator[str]:
    if silent := sum(bool(panel.stopped) for panel in panels.values()):
        yield f"{silent} of {len(panels)} checks did not answer"
    for look in panels["looks"].value or ():
        yield from _not_known(look, late)
    if unread := _judgement(panels).unread:
        yield _unread(unread)


def _judgement(panels: Mapping[str, Content]) -> Judgement:
    """Return the judgement; an empty one if the reading was stopped."""
    return panels["judged"].value or Judgement([], [], [])


def _not_known(look: Look, late: float) -> Iterable[str]:
    whose = "what is watched" if look.name == "alerts" else f"what the {look.name} watch"
    if look.seconds is None:
        yield f"nobody has looked at {whose} yet"
    elif look.seconds > late:
        yield f"nobody has looked at {whose} for {words.took(round(look.seconds))}"
    if look.unread:
        yield _unread(look.unread)


def _unread(rules: Sequence[str]) -> str:
    more = f" and {len(rules) - NAMED} more" if len(rules) > NAMED else ""
    return f"{', '.join(rules[:NAMED])}{more} could not be read"
