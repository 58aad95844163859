"""Operators, over HTTP: every answer is held against the rows as they were, by what the life of a task
allows an operator, which is written down here once more.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.faults.lives import BY_FILTER, MANY, ROLES, Audited, Task

Rows = Mapping[int, Task]

#: What an operator may do, and from which status on.
MAY = {
    "retry": ("failed", "cancelled"),
    "cancel": ("pending", "claimed", "running"),
    "prioritise": ("pending", "claimed", "running"),
}
UNFINISHED = ("pending", "claimed", "running")

#: What the crawl jobs' words ask for.
WORDS = {"queued": "retry", "failed": "cancel", "crawling": None, "success": None}

_RANGES = {role.name: role.priority_range for role in ROLES}
_HIGHEST = _RANGES["build"][1]

TOO_HIGH = _HIGHEST + 10

#: Seconds after which the server may have closed a connection nobody used: another is opened then.
IDLE = 2.0


@dataclass(frozen=True)
class Order:
    """A call that steers. `move`: what it does to a task, None if nobody but its worker can; `ids` names a bulk's."""

    action: str
    move: str | None
    method: str
    path: str
    body: Mapping[str, Any] = field(default_factory=dict)
    ids: str = "ids"


def _to_status(method: str, path: str) -> list[Order]:
    return [Order(str(move), move, method, path, {"status": word}, "job_ids") for word, move in WORDS.items()]


JOB = "/api/admin/jobs/{}"

STEER_ONE = (
    Order("retry", "retry", "POST", f"{JOB}/retry"),
    *_to_status("PUT", f"{JOB}/status"),
)
PRIORITISE = (
    *(Order("priority", "prioritise", "PUT", f"{JOB}/priority", {"priority": to}) for to in (0, 50, TOO_HIGH)),
    *(Order("boost", "prioritise", "POST", f"{JOB}/boost", {"boost": by}) for by in (1, 30, 90)),
)  # fmt: skip
STEER_MANY = (
    Order("cancel", "cancel", "POST", "/api/tasks/cancel"),
    Order("retry", "retry", "POST", "/api/tasks/retry"),
    Order("retry", "retry", "POST", "/api/admin/jobs/bulk/retry", ids="job_ids"),
    *_to_status("PUT", "/api/admin/jobs/bulk/status"),
)
MATCHING = tuple(Order(move, move, "POST", f"/api/tasks/{move}") for move in ("cancel", "retry"))


class Operators:
    """One caller with one token. `accepted` is what the audit trail has to say, of the sequence under way.

    `note` hears of each call that was answered.
    """

    def __init__(self, url: str, token: str, name: str, look: Callable[[], Rows], note: Callable[[], None]) -> None:
        self.http = HTTPConnection(str(urlsplit(url).hostname), urlsplit(url).port, timeout=30)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.name, self.look, self.note = name, look, note
        self.asked = 0.0
        self.answers: Counter[int] = Counter()
        self.accepted: list[Audited] = []

    def close(self) -> None:
        self.http.close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        if time.monotonic() - self.asked > IDLE:
            self.http.close()
        self.http.request(method, path, json.dumps(body or {}).encode(), self.headers)
        answer = self.http.getresponse()
        status, said, self.asked = answer.status, answer.read(), time.monotonic()
        self.note()
        self.answers[status] += 1
        assert status in (200, 201, 404, 409, 422), f"{method} {path} {body}: {status} {said!r}"
        document = json.loads(said)
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert (document["status"], bool(document["detail"])) == (status, True)
        return status, document

    def _accept(self, action: str, kind: str, *targets: object) -> None:
        self.accepted += [(self.name, action, kind, str(target)) for target in targets]

    # -- tasks that are there --------------------------------------------------------------------------------------

    def steer(self, order: Order, task: int) -> None:
        rows = self.look()
        status, said = self.ask(order.method, order.path.format(task), dict(order.body))
        assert (status == 404) == (task not in rows), said
        if status == 404:
            return
        accepts = task in _accepts(order, [task], rows)
        is_so = task in _queued_already(order, [task], rows)
        assert status == (200 if accepts or is_so else 409), f"{rows[task]} {order}: {status} {said}"
        if status == 200:
            assert said["target"] == str(task)
            assert said["before"].get("status", rows[task].status) == rows[task].status
        if accepts:
            self._accept(order.action, "task", task)

    def steer_many(self, order: Order, tasks: Sequence[int]) -> None:
        rows = self.look()
        status, said = self.ask(order.method, order.path, {**order.body, order.ids: list(tasks)})
        accepts = _accepts(order, tasks, rows)
        refused = {one["id"] for one in said["refused"] if one["reason"]}
        assert status == 200
        told = accepts | _queued_already(order, tasks, rows)
        assert (sorted(said["changed"]), set(said["missing"])) == (sorted(told), set(tasks) - set(rows))
        assert refused == set(tasks) & set(rows) - told
        self._accept(order.action, "task", *accepts)

    def steer_matching(self, order: Order, wanted: Mapping[str, Any], most: int) -> None:
        """First counted, then changed: as many as `most` of those that match, and that the move can start from."""
        rows = self.look()
        matching = {task.id for task in rows.values() if _matches(task, wanted, str(order.move))}
        body = {"filter": wanted, "most": most, "why": BY_FILTER}
        counted = {"matching": min(len(matching), most), "complete": len(matching) <= most, "gave_up": False}
        nothing = {"dry_run": True, "changed": [], "refused": [], "missing": [], "bulk": None}
        assert self.ask(order.method, order.path, body) == (200, counted | nothing)
        assert self._changed(rows) == set()
        status, said = self.ask(order.method, order.path, body | {"dry_run": False})
        changed, refused = self._changed(rows), {one["id"] for one in said["refused"]}
        assert (status, said | counted, set(said["changed"])) == (200, said, changed)
        assert changed | refused <= matching
        assert len(changed | refused) == counted["matching"]
        assert changed == _accepts(order, changed | refused, rows)
        self._accept(order.action, "tasks", *([MANY] if changed else []))

    def _changed(self, before: Rows) -> set[int]:
        """Those retried, cancelled or asked to stop since; who leads a lock key instead of them was not steered."""
        return {i for i, task in self.look().items() if i not in before or task.stage != before[i].stage}

    def recover_stale(self, minutes: int | None) -> None:
        silent = [task.id for task in self.look().values() if task.silent]
        body = {} if minutes is None else {"threshold_minutes": minutes}
        told = {"dry_run": False, "matching": len(silent), "recovered": len(silent)}
        assert self.ask("POST", "/api/tasks/recover-stale", body) == (200, told)
        self._accept("recover-stale", "task", *silent)

    # -- tasks to be -----------------------------------------------------------------------------------------------

    def enqueue(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """One, or many together: all or none."""
        rows = self.look()
        alone = len(tasks) == 1
        body = tasks[0] if alone else {"tasks": list(tasks)}
        status, said = self.ask("POST", "/api/tasks" if alone else "/api/tasks/bulk", body)
        bad, taken = [task for task in tasks if _is_refused(task)], _take_anothers_id(tasks, rows)
        assert (status == 422, status == 409) == (bool(bad), taken and not bad), said
        if bad or taken:
            assert set(self.look()) == set(rows)
            return
        receipts = [said] if alone else said["tasks"]
        self._judge_receipts(tasks, receipts, rows)
        assert status == (200 if alone and not said["is_new"] else 201)
        self._accept("enqueue", "task", *(receipt["id"] for receipt in receipts if receipt["is_new"]))

    def _judge_receipts(self, tasks: Sequence[Mapping[str, Any]], receipts: Sequence[Any], rows: Rows) -> None:
        """A task ends in the row that has its id or key, or in a new one; sent twice, it ends where the first did.

        A row that is too late to start has no key any more, nor has a task that comes too late.
        """
        new = [receipt["id"] for receipt in receipts if receipt["is_new"]]
        assert sorted(new) == sorted({receipt["id"] for receipt in receipts} - set(rows))
        keys = {task.key: i for i, task in rows.items() if task.key and task.status in UNFINISHED and not task.expired}
        names, sent = {task.task_id: i for i, task in rows.items()}, dict[str, int]()
        for task, receipt in zip(tasks, receipts, strict=True):
            name, key = task.get("task_id"), (task["role"], task["unique_key"])
            there = {sent[name]} if name in sent else {names.get(name), keys.get(key)} - {None}
            assert receipt["id"] in there or not there or _is_late(task)
            if name:
                sent.setdefault(name, receipt["id"])
            if receipt["is_new"] and task["unique_key"] and not _is_late(task):
                keys[key] = receipt["id"]

    def generate(self, path: str, body: Mapping[str, Any], audited: Sequence[str]) -> None:
        """The application's own tasks: as many as it says, none where it only tries."""
        before = set(self.look())
        status, said = self.ask("POST", path, dict(body))
        new = len(set(self.look()) - before)
        told = said.get("told", said)
        assert status in (200, 201)
        if body.get("dry_run"):
            assert new == 0
            return
        assert new == (told["created"] if "created" in told else told["is_new"])
        self._accept(*audited)

    # -- what tasks go by ------------------------------------------------------------------------------------------

    def pause_or_resume_role(self, role: str, pause: bool) -> None:
        action = "pause" if pause else "resume"
        status, said = self.ask("POST", f"/api/roles/{role}/{action}")
        assert status == (200 if role in _RANGES else 404)
        if status == 200:
            assert said["after"] == {"paused": pause}
            self._accept(action, "role", role)

    def set_account(self, account: str, changes: Mapping[str, Any]) -> None:
        status, said = self.ask("PUT", f"/api/accounts/{account}", {"create": True, **changes})
        assert (status, said["after"] | changes) == (200, said["after"])
        self._accept("policy", "account", account)

    def pause_or_resume_account(self, account: str, pause: bool) -> None:
        status, said = self.ask("POST", f"/api/accounts/{account}/{'pause' if pause else 'resume'}", {"create": True})
        assert (status, said["after"]["paused"]) == (200, pause)
        self._accept("policy", "account", account)

    def run_schedule(self, job: int) -> None:
        """Its task is new, unless the last one is unfinished."""
        known = {task.task_id for task in self.look().values()}
        status, said = self.ask("POST", f"/api/admin/scheduled-jobs/{job}/run-now")
        assert status == 200
        assert {task.task_id for task in self.look().values()} == known | {said["told"]}
        self._accept("run-now", "schedule", job)


def _accepts(order: Order, tasks: Iterable[int], rows: Rows) -> set[int]:
    """Those whose status allows the move, and whose key or role does not forbid it."""
    asked = [rows[i] for i in sorted(set(tasks)) if i in rows]
    able = [task for task in asked if order.move and task.status in MAY[order.move]]
    if order.move == "retry":
        able = _first_of_each_key(able, rows)
    if order.action == "priority":
        able = [task for task in able if _in_range(task.role, order.body["priority"])]
    return {task.id for task in able}


def _queued_already(order: Order, tasks: Iterable[int], rows: Rows) -> set[int]:
    """Those that have the status which the order sets: they stay as they are, and nothing is audited."""
    if order.body.get("status") != "queued":
        return set()
    return {i for i in tasks if i in rows and rows[i].status in ("pending", "claimed")}


def _first_of_each_key(tasks: Sequence[Task], rows: Rows) -> list[Task]:
    """The newest of each unique key, if no unfinished task has it."""
    taken = {task.key for task in rows.values() if task.status in UNFINISHED}
    newest = {task.key: task for task in tasks}
    return [task for task in tasks if not task.key or (task.key not in taken and newest[task.key] is task)]


def _take_anothers_id(tasks: Sequence[Mapping[str, Any]], rows: Rows) -> bool:
    """Whether an id is that of a task of another role; the arguments of all are the same."""
    roles = {task.task_id: task.role for task in rows.values()}
    return any("task_id" in task and roles.setdefault(task["task_id"], task["role"]) != task["role"] for task in tasks)


def _in_range(role: str, priority: int) -> bool:
    low, high = _RANGES.get(role, (priority, priority))
    return low <= priority <= high


def _is_refused(task: Mapping[str, Any]) -> bool:
    return task["role"] not in _RANGES or not _in_range(task["role"], task.get("priority", 0))


def _matches(task: Task, wanted: Mapping[str, Any], move: str) -> bool:
    statuses = wanted.get("status") or MAY[move]
    plain = {name: value for name, value in wanted.items() if name not in ("status", "waits_for")}
    waits = wanted.get("waits_for")
    return (
        task.status in MAY[move]
        and task.status in statuses
        and all(getattr(task, name) == value for name, value in plain.items())
        and (waits is None or (task.waits_for or "nothing") == waits)
    )


def _is_late(task: Mapping[str, Any]) -> bool:
    """Whether it has expired before it comes."""
    return str(task.get("expires_at", "")).startswith("2001")
