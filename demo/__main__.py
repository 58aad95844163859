"""`python -m demo`: sets the stage, has 261 sites built, judges what happened. Exit status 0 if everything holds.

DATABASE_URL and REDIS_URL name servers to use; the demo makes a database of its own there and takes an empty
Redis number. Without them the embedded stack serves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.migrate import migrate
from demo import evidence, plan
from demo.plan import CUSTOMERS, Customer
from demo.screen import Screen, judgement, summary
from demo.stage import FAULTS, INTERVAL, LATENCY_MS, PROCESSES, Process, Stage, StageError, stage, worker_and_beat
from demo.verdicts import verdicts

#: Seconds after which the CNAME records of the custom domains appear, and after which the demo gives up.
DOMAINS_AFTER, GIVES_UP_AFTER = 15.0, 240.0

#: Which request meets which fault. Chosen: with it, no site of a quiet account needs more than one backoff. With most
#: others one needs two or three (5, 10, 20 s, each up to the next pass), and the last verdict may fail for that reason.
SEED = 16

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser("demo", description=__doc__)
    options.add_argument(
        "--seed",
        type=int,
        default=SEED,
        help=f"of latency and faults; with others the quiet accounts may end later, waiting for retries [{SEED}]",
    )
    seed = options.parse_args(arguments).seed
    signal.signal(signal.SIGTERM, _interrupt)
    logs, screen = Path(tempfile.mkdtemp(prefix="celeriac-demo-")), Screen()
    status = _perform(seed, logs, screen)
    if status == 1:
        screen.say(f"What the worker and beat printed is in {logs}")
    else:
        shutil.rmtree(logs)
    return status


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _perform(seed: int, logs: Path, screen: Screen) -> int:
    began = time.monotonic()
    try:
        with stage(seed, logs) as on:
            os.environ.clear()
            os.environ.update(on.environ)
            succeeded = play(on, screen)
    except StageError as error:
        screen.say(f"The demo broke off: {error}")
        return 1
    except KeyboardInterrupt:
        screen.say("Interrupted; everything is stopped.")
        return INTERRUPTED
    screen.say(f"\n{'Everything holds' if succeeded else 'NOT everything holds'}, {time.monotonic() - began:.0f} s.")
    return 0 if succeeded else 1


def play(on: Stage, screen: Screen) -> bool:
    """The whole run; whether every verdict holds."""
    from tasks.app import app  # Only now: it reads the environment.

    _introduce(screen, on)
    _migrate(app)
    customers = accept(app)
    screen.say(f"{plan.BUILDS} builds are accepted, each with its site: rows, before there is any worker.\n")
    with worker_and_beat(on) as processes:
        watch(app, on, customers, processes, screen)
    return judge(app, on, customers, screen)


def _introduce(screen: Screen, on: Stage) -> None:
    low, high = LATENCY_MS
    seed = on.outside.faults.plan.seed
    screen.say(
        f"Duda, mail and DNS: a sandbox. Duda takes {low} to {high} ms and fails {FAULTS:.0%} of requests; seed {seed}."
    )
    screen.say(f"celery -A tasks worker: {PROCESSES} processes. celery -A tasks beat: a pass of the batcher every")
    screen.say(
        f"{INTERVAL:g} s (QM_INSTASITES_INTERVAL_SECONDS={INTERVAL:g}, so that it takes less time; 30 s is the rule)."
    )
    told = ", ".join(f"{customer.name} {customer.sites}" for customer in CUSTOMERS)
    screen.say(f"Sites per account: {told}. The broken one has lost its template.")


def _migrate(app: Celeriac) -> None:
    migrate(app.database.engine, app.migrations)
    with app.database.statement() as connection:
        connection.execute(evidence.RUNS_TABLE)


def accept(app: Celeriac) -> dict[int, Customer]:
    """Creates accounts, sites and builds in one transaction; the customers by account id."""
    with Session(app.database.engine) as session, session.begin():
        return plan.create(session)


def watch(
    app: Celeriac, on: Stage, customers: Mapping[int, Customer], processes: Sequence[Process], screen: Screen
) -> None:
    """Until nothing is left to do. The custom domains' CNAME records appear meanwhile."""
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < GIVES_UP_AFTER:
        with app.database.statement() as connection:
            now = evidence.progress(connection, customers)
        screen.progress(seconds, now)
        if not now.unfinished:
            return
        if seconds > DOMAINS_AFTER and not on.outside.names.describe():
            _point_domains(app, on, customers, screen)
        _expect_alive(processes)
        time.sleep(0.25)
    screen.say(f"Giving up after {GIVES_UP_AFTER:g} s.")


def _point_domains(app: Celeriac, on: Stage, customers: Mapping[int, Customer], screen: Screen) -> None:
    from tasks.instasites import CNAME_TARGET

    with app.database.statement() as connection:
        names = evidence.domains(connection, customers)
    on.outside.names.update(dict.fromkeys(names, CNAME_TARGET))
    screen.say(f"The customers set the CNAME records of their {len(names)} domains now; until here the checks snooze.")


def _expect_alive(processes: Sequence[Process]) -> None:
    for process in processes:
        if process.ended:
            raise StageError(f"the {process.name} ended by itself:\n{process.printed()[-2000:]}")


def judge(app: Celeriac, on: Stage, customers: Mapping[int, Customer], screen: Screen) -> bool:
    with app.database.statement() as connection:
        found = evidence.gather(connection, on.outside, customers)
        screen.say(f"\n{summary(found, evidence.early_looks(connection))}\n")
    app.publisher.close()
    app.database.engine.dispose()
    results = verdicts(found)
    screen.say(judgement(results))
    return all(verdict.holds for verdict in results)


if __name__ == "__main__":
    sys.exit(main())
