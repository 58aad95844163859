"""The overview's headline: it never says that all is well if that is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from celeriac.alerts.judgement import Judgement
from celeriac.dashboard import words
from celeriac.dashboard.reading import Content
from celeriac.insights.history.alerts import Look

#: So many rules that the last check could not read are named.
NAMED = 3


def verdict(panels: Mapping[str, Content], late: float) -> str:
    """Return the headline. `late`: seconds after which a check of the alerts is overdue."""
    silent = sum(bool(panel.stopped) for panel in panels.values())
    unknown = [f"{silent} of {len(panels)} checks did not answer"] if silent else []
    unknown += [sentence for look in panels["looks"].value or () for sentence in _not_known(look, late)]
    unknown += [_unread(unread)] if (unread := _judgement(panels).unread) else []
    wrong = [f"{one.name.replace('_', ' ')}: {one.subject}" for one in _judgement(panels).wrong]
    wrong += [f"{alert['name'].replace('_', ' ')}: {alert['subject']}" for alert in others(panels)]
    if wrong:
        more = f", and {words.plural(len(wrong) - 1, 'thing')} more" if len(wrong) > 1 else ""
        return "; ".join([f"{words.sentence(wrong[0]).rstrip('.')}{more}", *unknown])
    if unknown:
        return f"Not known: {'; '.join(unknown)}"
    soon = len(panels["pending"].value or ())
    return f"{words.plural(soon, 'thing')} may need you soon" if soon else "All is well"


def others(panels: Mapping[str, Content]) -> list[Mapping[str, Any]]:
    """Alerts of what an application watches itself, or what cannot be judged now: as they were last looked at."""
    known = _judgement(panels).judged
    return [alert for alert in panels["alerts"].value or () if alert["name"] not in known]


def _judgement(panels: Mapping[str, Content]) -> Judgement:
    """Empty where it was stopped."""
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
