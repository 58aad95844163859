"""Thumbnails of published sites: some stuck, some whose pages fail, and a process that dies while it renders.

plan        the sites
evidence    reads what happened
verdicts    judges it (pure)
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from celeriac import Celeriac
from demo.screen import Screen
from demo.size import sized
from demo.stage import Setting, Stage, browser, worker_and_beat
from demo.thumbnails import evidence, plan, verdicts
from demo.thumbnails.plan import CASES
from demo.verdict import Verdict
from demo.watch import watch
from sandbox import Plan

PROCESSES = 2
LATENCY_MS = (20, 80)

#: Seconds before the first retry; half a minute is the rule.
RETRY = sized(1.0, 0.2)

#: A process is killed once so many sites are rendered.
KILLS_AFTER = sized(4, 1)

GIVES_UP_AFTER = 180.0


def setting(seed: int | None) -> Setting:
    environ = {
        "NODE_ENV": "production",
        "THUMBNAILS_RETRY_SECONDS": f"{RETRY:g}",
        "THUMBNAILS_TIMEOUT_SECONDS": "60",
        "BROWSER_LOOK_SECONDS": "3",
        "THUMBNAILS_KEEP_OLD_SECONDS": "0",
        "CPU_BACKOFF_THRESHOLD": "1",
        "CELERIAC_DRAIN_GRACE_MS": "2000",
    }
    return Setting(environ, Plan(LATENCY_MS, seed=seed or 0))


def play(on: Stage, screen: Screen) -> Sequence[Verdict]:
    from tasks.app import app
    from tasks.thumbnails import VIEWPORTS

    _introduce(screen)
    url = (on.logs / "thumbnails").as_uri()
    on = replace(on, environ={**on.environ, "THUMBNAILS_URL": url})
    with Session(app.database.engine) as session, session.begin():
        cases = plan.create(session, on.outside.http_url)
    old = plan.leave_old(cases, url)
    with app.database.statement() as connection:
        before = evidence.versions(connection)
    _enqueue(app, screen)
    queues = "build_thumbnail,enqueue_missing_thumbnails,fix_stale_thumbnails,tidy_thumbnails,find_old_thumbnails"
    with worker_and_beat(on, "-c", str(PROCESSES), "-Q", queues) as processes:
        at_work = AtWork(app, screen)
        watch(at_work.look, processes, screen, gives_up_after=GIVES_UP_AFTER)
    with app.database.statement() as connection:
        found = evidence.gather(connection, on.outside, cases, before, VIEWPORTS, at_work.killed, old, url)
    screen.say()
    return verdicts.verdicts(found)


def _introduce(screen: Screen) -> None:
    screen.say(f"Pages: a sandbox. Browser: {browser()}, driven by {PROCESSES} processes of celery -A tasks worker.")
    told = ", ".join(f"{case.sites} {case.name}" for case in CASES)
    screen.say(f"Sites, of agency websites and InstaSites each: {told}.")


def _enqueue(app: Celeriac, screen: Screen) -> None:
    """What beat does every hour; the pass comes after it, to find what the fixer frees."""
    from tasks.stale_thumbnails import fix_stale_thumbnails

    app.register_roles()
    fix_stale_thumbnails.delay()
    screen.say(
        "The stale fixer and the pass that finds sites without a thumbnail are enqueued now, without waiting for"
    )
    screen.say(f"beat. After {KILLS_AFTER} sites, a process that renders is killed.\n")


class AtWork:
    """Until nothing is left to do. The pass is enqueued once the fixer is through; later a process is killed."""

    def __init__(self, app: Celeriac, screen: Screen) -> None:
        self.app, self.screen = app, screen
        self.enqueued = False
        self.killed: list[tuple[str, int]] = []

    def look(self, _seconds: float) -> tuple[str, bool]:
        with self.app.database.statement() as connection:
            now = connection.execute(evidence.PROGRESS).one()
        if not self.enqueued and not now.unfinished:
            self._enqueue()
        if now.done >= KILLS_AFTER and not self.killed:
            self._kill()
        line = f"rendered {now.done:2}/{plan.total('rendered')}, to retry {now.retrying}, failed {now.failed}"
        return line, self.enqueued and not now.unfinished and now.done > 0

    def _enqueue(self) -> None:
        from tasks.thumbnails import enqueue_missing_thumbnails

        enqueue_missing_thumbnails.delay()
        self.enqueued = True

    def _kill(self) -> None:
        with self.app.database.statement() as connection:
            running = connection.execute(evidence.RENDERING).one_or_none()
        if running is not None:
            os.kill(running[0], signal.SIGKILL)
            self.killed.append((running[1], running[2]))
            self.screen.say(f"Process {running[0]} is killed; it was at {running[1]} {running[2]}.")
