"""An old and a new release on one database under load: nothing is lost, and nothing runs twice.

    python -m tests.matrix.mixed [HEAD~5] [--seconds 60] [--rate 40]

The old one is the commit that is named, or else the last release's tag; the new one is this working tree. The old one's
worker, beat and producer work alone at first; after a third the new one migrates beneath them, and its own join; after
two thirds the old ones are stopped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from celeriac.testing.servers import servers
from tests.processes import ROOT, Rows, Running, process, until

LOAD = Path(__file__).parent / "load"

#: Seconds until what is left has been worked off.
PATIENCE = 120.0

TABLES = """
CREATE TABLE asked (n int PRIMARY KEY, release text NOT NULL, id text NOT NULL);
CREATE TABLE began (n int NOT NULL, role text NOT NULL, attempt int NOT NULL, release text NOT NULL);
CREATE TABLE written (n int NOT NULL, role text NOT NULL, release text NOT NULL);
"""

UNFINISHED = "SELECT count(*) FROM celeriac.tasks"

#: What was accepted and did not end well; what began or was written more often than asked.
LOST = """SELECT count(*) FROM asked LEFT JOIN worker_tasks t ON t.task_id = asked.id AND t.status = 'completed'
    WHERE t.id IS NULL"""
WITHOUT_FOLLOW_UP = "SELECT count(*) FROM asked WHERE n NOT IN (SELECT n FROM written WHERE role = 'second')"
BEGAN_TWICE = "SELECT count(*) FROM (SELECT FROM began GROUP BY n, role, attempt HAVING count(*) > 1) AS twice"
WRITTEN_TWICE = "SELECT count(*) FROM (SELECT FROM written GROUP BY n, role HAVING count(*) > 1) AS twice"
SHARES = "SELECT release, count(*) FROM written GROUP BY release ORDER BY release"


class Release:
    """A working tree, and its processes on the database."""

    def __init__(self, name: str, tree: Path, environ: dict[str, str], logs: Path) -> None:
        self.name, self.tree, self.logs = name, tree, logs
        self.environ = environ | {"MIXED_RELEASE": name, "PYTHONPATH": f"{LOAD}:{tree}"}

    def command(self, *words: str) -> list[str]:
        return ["env", "-C", str(self.tree), sys.executable, *words]

    def started(self, what: str, *words: str) -> Running:
        return self.stack.enter_context(process(self.command(*words), self.environ, self.logs / f"{self.name} {what}"))

    def migrate(self) -> None:
        command = self.command("-m", "celery", "-A", "mixed_load", "celeriac", "migrate")
        subprocess.run(command, env={**os.environ, **self.environ}, check=True)

    def join(self, stack: ExitStack, rate: float, seconds: float, number: int) -> None:
        """A worker, a beat, and a producer for so long."""
        self.stack = stack
        celery = ("-m", "celery", "-A", "mixed_load")
        self.worker = self.started("worker", *celery, "worker", "-c", "2", "-l", "INFO", "-n", f"{self.name}@here")
        self.beat = self.started("beat", *celery, "beat", "-l", "INFO")
        self.producer = self.started("producer", str(LOAD / "mixed_load.py"), *map(str, (number, 2, rate, seconds)))

    def leave(self) -> None:
        self.worker.stop(60)
        self.beat.stop(60)


def main() -> int:
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="celeriac-mixed-") as name, servers() as there, there.cloned() as url:
        logs, environ = Path(name), {"DATABASE_URL": url, "REDIS_URL": there.redis_url}
        old = Release("old", tree_of(asked.old, logs), environ, logs)
        new = Release("new", ROOT, environ, logs)
        rows = Rows(url)
        rows(TABLES)
        work(old, new, rows, asked.rate, asked.seconds)
        return judge(rows, asked.old)


def work(old: Release, new: Release, rows: Rows, rate: float, seconds: float) -> None:
    third = seconds / 3
    with ExitStack() as stack:
        old.migrate()
        old.join(stack, rate, seconds, 0)
        until(lambda: rows("SELECT FROM written LIMIT 1"), "the old release's first task")
        time.sleep(third)
        new.migrate()
        new.join(stack, rate, 2 * third, 1)
        time.sleep(third)
        old.leave()
        for one in (old, new):
            until(lambda one=one: one.producer.process.poll() is not None, "its producer", PATIENCE)  # type: ignore[misc]
            if one.producer.process.poll():
                sys.exit(f"the {one.name} release's producer failed:\n{one.producer.printed()[-2000:]}")
        until(lambda: rows.one(UNFINISHED) == 0, "all to be worked off", PATIENCE)
        new.leave()


def judge(rows: Rows, old: str) -> int:
    shares = {str(release): int(n) for release, n in rows(SHARES)}
    lost, unfollowed = rows.one(LOST), rows.one(WITHOUT_FOLLOW_UP)
    began, written = rows.one(BEGAN_TWICE), rows.one(WRITTEN_TWICE)
    print(f"accepted {rows.one('SELECT count(*) FROM asked'):,}; runs by {old}: {shares.get('old', 0):,}, "
          f"by this tree: {shares.get('new', 0):,}")  # fmt: skip
    print(f"lost {lost}, without their follow-up {unfollowed}; begun twice {began}, written twice {written}")
    return 0 if {lost, unfollowed, began, written} == {0} and min(shares.values()) > 0 and len(shares) == 2 else 1


def tree_of(commit: str, folder: Path) -> Path:
    """That commit's files, aside."""
    tree, packed = folder / "tree", folder / "tree.tar"
    tree.mkdir()
    subprocess.run(["git", "archive", "--output", packed, commit], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", packed, "-C", tree], check=True)
    return tree


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.mixed")
    parser.add_argument("old", nargs="?", help="a commit or a tag; the last tag, if none is named")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load")
    parser.add_argument("--rate", type=float, default=40.0, help="tasks a second of each producer")
    asked = parser.parse_args()
    asked.old = asked.old or last_release()
    return asked


def last_release() -> str:
    done = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit("no commit before this one has a tag: name one, as in: python -m tests.matrix.mixed HEAD~5")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
