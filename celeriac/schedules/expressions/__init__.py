"""Expressions of schedules, and their instants. Pure: no clock is read.

`@daily`, `@every 1h30m`, `*/30 * * * *`, `CRON_TZ=Europe/Berlin 0 5 * * mon-fri`. Cron patterns have five fields, or
six with the second first (node-cron's order). What a pattern matches is
what it matches in Debian's cron, which cronsim follows (docs/decisions/0010):

- A day matches if the day of the month *or* of the week does; if either field begins with `*`, both must. Not Debian's:
  so they must if there is a `&` before the day of the week.
- Clocks that are set: if the hour field begins with `*`, the pattern follows the clocks as they run, through both
  passes of a repeated hour, and never at a reading that does not come. Any other pattern names hours of the day, and
  each named reading runs once: in the first pass if it comes twice; if it never comes, at once after the gap, together
  with the others of that gap. Debian's cron also follows the clocks for a minute field of `*`, so that `*/15 2 * * *`
  would not run at all on a day without 2 o'clock; here it runs.

`@every` counts from when its series began and knows no time zone.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from celeriac.errors import BadExpression
from celeriac.schedules.expressions import cronfields, durations, sun
from celeriac.schedules.expressions.wallclock import SECOND, first_change, instant, reading

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LONGEST_TEXT = 500


@dataclass(frozen=True)
class Expression(ABC):
    """An expression, made by `parse`. Moments are aware datetimes of any zone, results are UTC."""

    text: str
    timezone: str

    @abstractmethod
    def following(self, moment: datetime) -> datetime:
        """Return the first instant strictly after `moment`; for `@every`, `moment` is an instant of the series."""

    def first(self, now: datetime) -> datetime:
        """Return the instant at which a new series begins."""
        return self.following(now)

    @abstractmethod
    def resume(self, last: datetime, now: datetime) -> datetime:
        """Return the first instant of the series through `last` that is after both; it takes no longer after a long
        pause.
        """

    def instants(self, first: datetime, until: datetime, limit: int) -> list[datetime]:
        """Return the instants of the series from `first`, itself an instant, through `until`, at most the oldest
        `limit`.
        """
        instants: list[datetime] = []
        instant = _utc(first)
        while instant <= until and len(instants) < limit:
            instants.append(instant)
            instant = self.following(instant)
        return instants


@dataclass(frozen=True)
class Every(Expression):
    """An `@every` expression, to the microsecond."""

    every: timedelta

    def following(self, moment: datetime) -> datetime:
        return _utc(moment) + self.every

    def resume(self, last: datetime, now: datetime) -> datetime:
        last = _utc(last)
        return last + max(1, (_utc(now) - last) // self.every + 1) * self.every


@dataclass(frozen=True)
class Cron(Expression):
    """A cron pattern on the clocks of a time zone, to the second."""

    pattern: str
    zone: ZoneInfo = field(compare=False, repr=False)

    def following(self, moment: datetime) -> datetime:
        at = _utc(moment).replace(microsecond=0)
        every_hour = self.pattern.split()[2].startswith("*")
        return self._on_the_clocks(at + SECOND) if every_hour else self._once_each(at)

    def resume(self, last: datetime, now: datetime) -> datetime:
        return self.following(max(last, now))

    def _once_each(self, at: datetime) -> datetime:
        instants = (instant(wall, self.zone) for wall in cronfields.matches(self.pattern, reading(at, self.zone)))
        return next(each for each in instants if each > at)

    def _on_the_clocks(self, at: datetime) -> datetime:
        """Return the first match from `at` on, searching one stretch between changes of the clocks after another."""
        while True:
            wall = reading(at, self.zone)
            candidate = at + (next(cronfields.matches(self.pattern, wall - SECOND)) - wall)
            change = first_change(at, candidate, self.zone)
            if change is None:
                return candidate
            at = change


@dataclass(frozen=True)
class Solar(Expression):
    """An event of the sun at a place, to the second."""

    event: sun.Solar

    def following(self, moment: datetime) -> datetime:
        return self.event.following(_utc(moment))

    def resume(self, last: datetime, now: datetime) -> datetime:
        return self.following(max(last, now))


@lru_cache(maxsize=4096)
def parse(text: str, timezone: str = "UTC") -> Expression:
    """Parse an expression. Raises BadExpression with what is wrong, where, and what would be right.

    A prefix `CRON_TZ=` or `TZ=` overrides `timezone`. Words and names may be in capitals, units may not.
    """
    text = text.strip()
    if len(text) > LONGEST_TEXT:
        raise BadExpression(f"{text[:40]!r}… has {len(text)} characters, more than {LONGEST_TEXT}; try '*/30 * * * *'")
    timezone, when = _without_prefix(text, timezone)
    zone = _zone(timezone)
    word, _, rest = when.partition(" ")
    if word.lower() == "@every":
        return Every(text, timezone, durations.period(rest.strip()))
    if word.lower() == "@solar":
        return Solar(text, timezone, sun.read(rest))
    return Cron(text, timezone, cronfields.read(_alias(when) if when.startswith("@") else when), zone)


def _without_prefix(text: str, timezone: str) -> tuple[str, str]:
    if not text.startswith(("CRON_TZ=", "TZ=")):
        return timezone, text
    prefix, _, when = text.partition(" ")
    return prefix.partition("=")[2], when.strip()


def _alias(when: str) -> str:
    if when.lower() in ALIASES:
        return ALIASES[when.lower()]
    known = ["@every", "@solar", *ALIASES]
    near = difflib.get_close_matches(when.lower().split()[0], known, n=1) or ["@daily"]
    example = near[0] + (" 1h30m" if near == ["@every"] else "")
    raise BadExpression(f"there is no {when!r}; there are {', '.join(known)}: write for example {example!r}")


def _zone(name: str) -> ZoneInfo:
    if name in _zones():
        return ZoneInfo(name)
    usual = {zone.lower(): zone for zone in _zones()}
    near = difflib.get_close_matches(name.lower(), usual, n=1)
    example = usual[near[0]] if near else "Europe/Berlin"
    raise BadExpression(f"there is no time zone {name!r}; write for example {example!r}")


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone: which instant it is cannot be told")
    return moment.astimezone(UTC)
