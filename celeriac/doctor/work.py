"""Check for work that does not go on: pauses, long runs and failures, retries, schedules and priorities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.doctor.findings import LATE, Seen, Trouble, age, counted, named
from celeriac.insights.fleet import condition
from celeriac.insights.history.sweeps import undone
from celeriac.schedules.listed import entries
from celeriac.schedules.timetable import Timetable
from celeriac.settings import Settings
from celeriac.store.role_names import parts_of_lane
from celeriac.store.shell import argument


def pauses(app: Celeriac) -> Seen:
    """Check for paused roles and accounts that have work."""
    with app.database.reading() as connection:
        accounts = condition.shut_accounts(connection)
        paused = condition.paused(connection)
        depths = [depth for role in paused for depth in insights.depth(connection, role)]
    waiting = [depth for depth in depths if depth.pending.n + depth.claimed > 0]
    return Seen(
        "no role and no account is paused that has work",
        [
            Trouble(
                f"account {one.account} {one.how}, and {counted(one.waiting, 0)} of its tasks wait",
                f"run `{one.cure}`, if it is not meant any more",
            )
            for one in accounts
        ]
        + [
            Trouble(
                f"{depth.role} is paused, and {counted(depth.pending, depth.claimed)} of its tasks wait",
                f"run `celeriac roles resume {argument(held)}`, if it is not meant any more",
            )
            for depth in waiting
            # A lane whose role is paused is resumed with it.
            for held in [next(name for name in (parts_of_lane(depth.role)[0], depth.role) if name in paused)]
        ],
    )


def retries(app: Celeriac) -> Seen:
    """Check that due tasks go on, and list roles with tasks that have no retries left."""
    with app.database.reading() as connection:
        of_roles = condition.retries(connection, LATE)
    used_up = {one.role: one.used_up for one in of_roles if one.used_up}
    without_retries = ", ".join(f"{n:,} of {role}" for role, n in used_up.items())
    sentence = "what waits for its time goes on at it"
    if without_retries:
        sentence += (
            f"; failed within a day after all their retries: {without_retries} "
            "(`celeriac tasks retry` gives them new ones)"
        )
    return Seen(
        sentence,
        [
            Trouble(
                f"{one.overdue:,} tasks of {one.role} wait although their time came, the first "
                f"{age(one.seconds)} ago: nobody promotes them",
                f"run `celery -A {app.main or 'tasks'} beat`, or a worker; `celeriac sweep promote` does it once",
            )
            for one in of_roles
            if one.overdue
        ],
    )


def schedules(app: Celeriac) -> Seen:
    """Check that schedules run; report which are off, and which comes next."""
    with app.database.reading() as connection:
        jobs = insights.schedules(connection)
    on = [job for job in jobs if job["enabled"]]
    off = named(job["name"] for job in jobs if not job["enabled"])
    tasks = [job for job in on if job["kind"] == "task" and not job["quarantined"]]
    first = min(tasks, key=lambda job: job["next_run_at"], default=None)
    coming = f", next {first['name']} at {first['next_run_at']:%Y-%m-%d %H:%M:%S %Z}" if first else ""
    return Seen(
        f"{len(on)} are on{coming}" + (f"; off: {off}" if off else ""),
        [*_left_out(app, jobs)],
    )


def _left_out(app: Celeriac, jobs: list[dict[str, Any]]) -> Iterator[Trouble]:
    """Yield schedules of the beat config that its beat did not install."""
    known = {job["name"] for job in jobs}
    if any(job["owner"] == Timetable(app).owner for job in jobs):
        listed, own = entries(app).keys(), entries(app, celerys=False).keys()
        left = listed - own if known.isdisjoint(listed - own) else set()  # to another scheduler, named by `-S`
        for name in sorted(listed - left - known):
            yield Trouble(
                f"{name} stands in the beat config alone", "start beat anew; what refuses it stands in its log"
            )


def sweeps(app: Celeriac) -> Seen:
    """Check that no sweep is switched off; those that fail are a rule's."""
    with app.database.reading() as connection:
        off = [one for one in undone(connection) if not one.enabled]
    return Seen(
        "each is on, and none fails",
        [
            Trouble(
                f"{one.name} is switched off: {one.cost}", f"run `celeriac schedules toggle {argument(one.name)} on`"
            )
            for one in off
        ],
    )


def priorities(app: Celeriac) -> Seen:
    """Report how many tasks wait at which priority."""
    with app.database.statement() as connection:
        queued = insights.priorities_of(connection)
    with app.database.reading() as connection:
        aging = [job for job in insights.schedules(connection) if (job["kind"], job["target"]) == ("sweep", "aging")]
    waiting = [f"{role} {_histogram(tens)}" for role, tens in queued.items() if tens]
    sentence = "; ".join(waiting) or "nothing waits"
    return Seen(f"{sentence}; of an account, the highest go first, and the oldest of them{_aged(aging, app.settings)}")


def _histogram(priorities: Mapping[int, int]) -> str:
    return ", ".join(f"{n:,} at {tens}" for tens, n in sorted(priorities.items(), reverse=True))


def _aged(aging: list[dict[str, Any]], settings: Settings) -> str:
    last = [job["last_run_at"] for job in aging if job["last_run_at"]]
    return f"; aging last ran at {last[0]:%H:%M:%S %Z}, up to {settings.aging_ceiling:g}" if last else ""
