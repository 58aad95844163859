"""40 subreddits, crawled within a limit that takes several windows, while users ask for some of them.

evidence    reads what happened
verdicts    judges it (pure)
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.schedules import enqueuing, operate
from demo.screen import Screen
from demo.size import sized
from demo.stage import Setting, Stage, worker_and_beat
from demo.subreddits import evidence, verdicts
from demo.subreddits.verdicts import Wish
from demo.verdict import Verdict
from demo.watch import watch
from models import Subreddit
from sandbox import Plan
from sandbox.faults import evenly

BACKGROUND = tuple(f"Background_{n:02}" for n in range(sized(34, 8)))

#: Those accepted before there is a worker. The others are accepted together with what users ask for, once
#: `USERS_AFTER` crawls are done: so they wait then, however late this process sees it.
EARLY = BACKGROUND[: sized(20, 3)]
LATE = BACKGROUND[len(EARLY) :]

#: What users ask for: the last ones in the background, and some nobody knew.
WAITING = LATE[-sized(3, 1) :]
NEW = tuple(f"Wanted_{n}" for n in range(sized(6, 2)))
SUBREDDITS = BACKGROUND + NEW
USERS_AFTER = sized(6, 2)

#: Has a schedule and a crawl that waits, and is deleted before a worker comes.
DELETED = "Deleted"

#: Reddit's limit in the demo: requests in so many seconds. A crawl takes 4.
LIMIT = sized((80, 6.0), (33, 3.0))

PROCESSES = sized(4, 2)
LATENCY_MS = (30, 120)
FAULTS = 0.06

#: Seconds before the first retry; a minute is the rule.
RETRY = sized(3.0, 1.0)

#: The sandbox holds a hanging request for longer than the client waits.
CLIENT_WAITS, HANGS_FOR = 2.0, 5.0

GIVES_UP_AFTER = 120.0

SEED = 3


def setting(seed: int | None) -> Setting:
    environ = {
        "REDDIT_RETRY_SECONDS": f"{RETRY:g}",
        "REDDIT_TIMEOUT_SECONDS": f"{CLIENT_WAITS:g}",
        "REDDIT_CRAWLS_AT_ONCE": str(PROCESSES),
        "CELERIAC_DRAIN_GRACE_MS": "2000",
    }
    outside = Plan(LATENCY_MS, evenly(FAULTS), hang_seconds=HANGS_FOR, seed=SEED if seed is None else seed)
    return Setting(environ, outside)


def play(on: Stage, screen: Screen) -> Sequence[Verdict]:
    from tasks.app import app

    _introduce(on, screen)
    accept(app)
    screen.say(f"{len(EARLY)} background crawls are accepted: rows, before there is any worker.")
    screen.say("Another subreddit is deleted again, with its schedule and its crawl.\n")
    queues = "crawl_subreddit,enqueue_stale_subreddits"
    with worker_and_beat(on, "-c", str(PROCESSES), "-Q", queues) as processes:
        at_work = AtWork(app, screen)
        watch(at_work.look, processes, screen, gives_up_after=GIVES_UP_AFTER)
    with app.database.statement() as connection:
        found = evidence.gather(connection, on.outside.reddit, SUBREDDITS, DELETED, at_work.wishes, PROCESSES)
    screen.say(f"\n{evidence.summary(found)}\n")
    return verdicts.verdicts(found)


def _introduce(on: Stage, screen: Screen) -> None:
    requests, seconds = LIMIT
    reddit = on.outside.reddit
    for name in SUBREDDITS:
        reddit.forum.open(name)
    reddit.limit(requests, seconds)
    seed = on.outside.faults.plan.seed
    screen.say(f"Reddit: a sandbox that allows {requests} requests in {seconds:g} s and fails {FAULTS:.0%} of them;")
    screen.say(
        f"seed {seed}. A crawl takes 4. celery -A tasks worker: {PROCESSES} processes. The first retry waits about"
    )
    screen.say(f"{RETRY:g} s (REDDIT_RETRY_SECONDS={RETRY:g}, so that it takes less time; a minute is the rule).")


def accept(app: Celeriac) -> None:
    from tasks.subreddits import request_crawl

    with Session(app.database.engine) as session, session.begin():
        for name in (DELETED, *EARLY):
            request_crawl(name, priority=0, session=session)
    with Session(app.database.engine) as session, session.begin():
        doomed = session.scalars(select(Subreddit).where(Subreddit.name == DELETED.lower())).one()
        entry = enqueuing("of the deleted one", "@daily", "crawl_subreddit", {"subreddit_id": doomed.id})(app)
        operate.create(app, entry, by="the demo")
        session.delete(doomed)


class AtWork:
    """Until no crawl is left. Meanwhile more come in the background, and users ask, for one of the new ones twice."""

    def __init__(self, app: Celeriac, screen: Screen) -> None:
        self.app, self.screen = app, screen
        self.wishes: list[Wish] = []

    def look(self, _seconds: float) -> tuple[str, bool]:
        with self.app.database.statement() as connection:
            now = evidence.progress(connection)
        if not self.wishes and now.completed >= USERS_AFTER:
            self._ask()
            return str(now), False
        return str(now), bool(self.wishes) and not now.unfinished

    def _ask(self) -> None:
        from tasks.subreddits import request_crawl

        with Session(self.app.database.engine) as session, session.begin():
            for name in LATE:
                request_crawl(name, priority=0, session=session)
            waiting = evidence.waiting(session.connection())
            for name in (*WAITING, *NEW, NEW[0]):
                request_crawl(name, session=session)
        with self.app.database.statement() as connection:
            at = evidence.now(connection)
        self.wishes = [Wish(name.lower(), at) for name in WAITING + NEW]
        self.screen.say(
            f"{len(LATE)} more come in the background. Users ask for {len(WAITING)} of the {waiting} that wait, "
            f"and for {len(NEW)} new ones, at priority 60."
        )
