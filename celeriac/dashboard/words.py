"""Format states, durations and figures. `–` means none, `0` zero, `unknown` not known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from celeriac.insights import ARGUMENT, Count
from celeriac.insights.failures.marks import Mark
from celeriac.insights.fleet.resources import percent as percent
from celeriac.insights.tasks.conditions import CONDITIONS
from celeriac.store.states import ALL, CRAWLS, GONE, NO_TICK, QUEUES

#: The glyph of each state, which is always shown with the word and a colour.
GLYPHS = {
    "pending": "○", "claimed": "◔", "running": "▶", "completed": "✓", "failed": "✕", "cancelled": "⊘", "paused": "❚❚",
    "late": "◌", "active": "●", "draining": "◐", "stopped": "✕", "gone": "✕",
}  # fmt: skip

#: Why a pending task is not ready.
WAITS = {
    None: "ready", "time": "for its time", "lock": "behind a lock", "account": "account paused",
    "members": "for its group",
}  # fmt: skip

#: The label of each value of the filter by such a reason.
REASONS = {
    "nothing": "due", "time": "later", "lock": "behind a lock", "account": "account paused", "members": "for a group",
}  # fmt: skip

#: The number up to which a filter's matches, and each role's tasks, are counted.
CAP = 10_000

NONE = "–"

#: The filter's value for tasks without an account: an empty value would be no filter.
NOBODY = "(none)"

_LIKE_NOBODY = re.compile(r"\(+none\)+")


def account(name: str) -> str:
    """Return the filter's value for an account's tasks: its name, in further parentheses if it looks like `NOBODY`."""
    return f"({name})" if _LIKE_NOBODY.fullmatch(name) else name or NOBODY


def account_of(value: str) -> str:
    """Return the account for a filter's value."""
    if value == NOBODY:
        return ""
    return value[1:-1] if _LIKE_NOBODY.fullmatch(value) and value.startswith("((") and value.endswith("))") else value


_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "m"), (1.0, "s"))


def size(n: int) -> str:
    """Format as `8 kB`, `1.5 GB`: in powers of 1,024, as Postgres does."""
    value = float(n)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1024:
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
        value /= 1024
    return f"{value:,.3g} TB" if value < 1000 else f"{value:,.0f} TB"


def took(seconds: float | None) -> str:
    """Format as `4 m 12 s`: the two largest units that matter."""
    if seconds is None:
        return NONE
    if seconds < 0:
        return f"-{took(-seconds)}"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    parts: list[str] = []
    left = round(seconds)
    for size, name in _UNITS:
        n, left = divmod(left, int(size))
        if n or parts:
            parts.append(f"{n} {name}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def figure(value: Any) -> str:
    """Format as `12 404`, with thin spaces; a count that reached its limit as `10 000+`."""
    if value is None:
        return NONE
    if isinstance(value, Count):
        return figure(value.n) if value.exact else f"{figure(value.n)}+"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}".replace(",", "\u202f")
    return f"{int(value):,}".replace(",", "\u202f")


def short(value: float) -> str:
    """Format for a narrow axis: `1 000`, `50k`, `2.5M`."""
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / size:.3g}{unit}"
    return figure(round(value))


def mean(value: float | None) -> str:
    """Format a value computed from means with three digits: further ones would be chance."""
    return figure(value if value is None or value < 100 else float(f"{value:.3g}"))


def at_least(count: Count | None) -> str:
    """Format a count among the newest rows as `12`, or `12+` if there may be more; None is 0."""
    return "0" if count is None else f"{figure(count.n)}{'' if count.exact else '+'}"


def plural(n: int, one: str, many: str = "") -> str:
    return f"{figure(n)} {one if n == 1 else many or one + 's'}"


def marked(mark: Mark) -> str:
    """Format a failure's mark: glyph and word."""
    if mark.reopened:
        return "✕ open again"
    return {"open": "✕ open", "known": "◔ known", "resolved": "✓ resolved"}[mark.state]


def share(part: int | None, whole: int | None) -> str:
    """Format as `2.1 % (262 of 12 666)`: a percentage with its base."""
    if not whole or part is None:
        return NONE
    return f"{100 * part / whole:.1f} % ({figure(part)} of {figure(whole)})"


def rate(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def exact(value: Any) -> str:
    """Format as indented JSON, with all digits that Postgres has."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def compact(value: Any) -> str:
    """Format as `exact` does, in one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def first_line(value: Any, longest: int = 120) -> str:
    if value is None:
        return ""
    line = (value if isinstance(value, str) else compact(value)).partition("\n")[0]
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def resource(percent: float | None) -> str:
    """Return the word for a resource's use: ok below 50 %, warm below 75, high below 90, else critical."""
    if percent is None:
        return "unknown"
    return "ok" if percent < 50 else "warm" if percent < 75 else "high" if percent < 90 else "critical"


@cache
def other_names(status: str) -> str:
    """Return other systems' names for the status."""
    return ", ".join(word for word, statuses in (CRAWLS | QUEUES).items() if status in statuses and word not in ALL)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")


def seconds(text: str) -> float | None:
    """Parse `90`, `30s`, `15m`, `1h` or `2d`; None for anything else."""
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]


#: Seconds of silence after which a worker is late.
LATE = 60.0


def standing(worker: Mapping[str, Any]) -> str:
    """Return the state of a row of `insights.workers`: active, draining, late, gone or stopped."""
    if worker["status"] == "stopped" or worker["heartbeat_age"] <= LATE:
        return str(worker["status"])
    return "late" if worker["heartbeat_age"] <= GONE else "gone"


def still(worker: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker's row without the value that changes at each read."""
    return {name: value for name, value in worker.items() if name != "heartbeat_age"}


def ticking(beats: Sequence[Mapping[str, Any]], now: datetime) -> list[Mapping[str, Any]]:
    """Return the beats that ticked lately."""
    return [beat for beat in beats if (now - beat["last_tick_at"]).total_seconds() <= NO_TICK]


def in_step(tickets: int, in_redis: int | None) -> str:
    """Compare a queue's unstarted tickets in SQL with Redis, which also has wake-ups."""
    if in_redis is None:
        return "unknown: Redis does not answer"
    if tickets > in_redis:
        return f"SQL ahead by {figure(tickets - in_redis)}: workers have just taken them, or they are lost"
    if in_redis > tickets:
        return f"Redis ahead by {figure(in_redis - tickets)}: kicks or leftovers, which do no harm"
    return "in step"


def alert(row: Mapping[str, Any]) -> str:
    """Return the alert's sentence, without the subject with which it begins."""
    usual = f"has {row['value']:g} for {row['name'].replace('_', ' ')}, over {row['threshold']:g}"
    return str(row["says"] or usual)


#: By a bulk's condition: its word on the page of tasks.
_CONDITIONS = {one.name: one.page for one in CONDITIONS} | {"statuses": "state"}


def conditions(filters: Mapping[str, Any]) -> str:
    """Format a bulk's filter as part of a sentence."""
    flat = {name: value for name, value in filters.items() if name != "arguments"}
    flat |= {f"{ARGUMENT}{name}": value for name, value in filters.get("arguments", {}).items()}
    return ", ".join(f"{_CONDITIONS.get(name, name)} {_condition(name, value)}" for name, value in flat.items())


def _condition(name: str, value: Any) -> str:
    if name == "statuses":
        return " or ".join(value)
    if name == "account":
        return account(value)
    return took(value) if name in ("older_than", "newer_than") else str(value)


def of_many(entry: Mapping[str, Any]) -> str:
    """Format how many tasks a bulk selected, changed and skipped, as far as its audit entry has these counts."""
    counts = entry["after"] if entry["kind"] == "bulk" and isinstance(entry["after"], dict) else {}
    return ", ".join(
        f"{figure(counts[name])} {name}" for name in ("asked", "done", "skipped") if counts.get(name) is not None
    )


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def iso(at: datetime) -> str:
    return f"{at.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"
