"""A statement costs what it selects: no plan reads a room or the history, whatever its shape and the statistics."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import md5
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine

from celeriac.enqueue import insert
from celeriac.enqueue.adopted import Letter
from celeriac.enqueue.ready import alike_row, ready_row
from celeriac.insights import lists
from celeriac.insights.histogram import BOUNDS
from celeriac.repair.minutes import Minute
from celeriac.store.connections import Database
from celeriac.store.plans import BY_HASHES, BY_LOOKUPS, IN_ORDER
from tests.postgres.backlog import SHAPES, TOKEN, analyze, analyze_while_idle, fill, is_large
from tests.postgres.conftest import new_task
from tests.postgres.plans import Plan, explain
from tests.postgres.test_statements import STATEMENTS

Clone = Callable[[], str]
Measured = dict[str, Plan]
Given = dict[str, Any]

SMALL, LARGE = 5_000, 100_000
SELECTED = 60

#: Pages that may be added however little a statement selects: a few for each of the 60 active rows, which may lie
#: anywhere, and a level of each index.
ALLOWED = 150

#: Rows of a room that may be read from end to end: what is as short as every room is beside the backlog.
FEW = 1_000

#: Tables that have a row for each role, schedule, process, ticket or token, and the engine's own bookkeeping.
SHORT = {
    "account_policies", "afterwards", "alert_deliveries", "alert_silences", "alerts", "alerts_pending", "api_tokens",
    "batchers", "beats", "bulk_actions", "enqueuers", "failure_marks", "group_results", "minutes_in_all",
    "minutes_until", "outcomes", "queue_states", "repairs", "ring", "role_limits", "roles", "saved_views",
    "scheduled_jobs", "sweep_runs", "tickets", "unparking", "workers",
}  # fmt: skip

#: Not explained here: figures count what there is (`test_plans_of_figures`), these read the catalog or change it, and
#: moving a sealed segment takes whatever entries it meets first.
EXCEPT = {
    "insights.capacity.CAPACITY", "insights.metrics.MEASURE", "insights.metrics.PRIORITIES",
    "insights.counting.BELIEVED", "insights.counting.DUE", "repair.prune.DAYS", "repair.prune.DROP_DAY", "add days",
    "move", "insights.figures.ESTIMATED", "insights.figures.REVISION", "dispatch.select.DEAD",
}  # fmt: skip


def short(name: str) -> str:
    return name.removeprefix("celeriac.")


#: Functions that ask no table.
ASK_NOTHING = {"tokens", "burst", "per_second", "declared_limits", "up_since", "is_instants"}

#: The engine's statements that meet a room, by name.
MEET_ROOMS = {
    short(name): statement
    for name, statement in STATEMENTS.items()
    if set(re.findall(r"celeriac\.(\w+)", statement.text)) - SHORT - ASK_NOTHING
}
HELD = ("claimed", "running")
MEET_ROOMS |= {f"{of} of {HELD}": STATEMENTS[f"{of} of {HELD}"] for of in ("page", "ids", "end")}


def statements(connection: Connection) -> Mapping[str, list[Given]]:
    """What each of the statements is asked for: 60 of what is there."""

    def found(query: str) -> list[Any]:
        return list(connection.exec_driver_sql(query).scalars())

    def ids(prefix: str, n: int = SELECTED) -> list[int]:
        return found(f"SELECT id FROM celeriac.tasks WHERE task_id LIKE '{prefix}-%%' ORDER BY id LIMIT {n}")

    work, w, by = {"role": "work"}, {"worker_id": "w", "pid": 1}, {"by": "", "why": ""}
    accounts = found(f"SELECT DISTINCT account FROM celeriac.ready WHERE role = 'work' ORDER BY 1 LIMIT {SELECTED}")
    running = found(f"SELECT unnest(ids) FROM celeriac.tickets WHERE token = '{TOKEN}'")
    silent = found("SELECT CAST(token AS text) FROM celeriac.tickets WHERE worker_pid = 2")
    failed = found(f"""SELECT id FROM celeriac.history WHERE task_id LIKE 'done-%%' AND status = 'failed'
        LIMIT {SELECTED}""")
    failed_ids = ",".join(map(str, failed))
    ready, heads = ids("ready"), ids("head")
    (schedule,) = found("SELECT id FROM celeriac.scheduled_jobs WHERE name = 'nightly'")
    (letter,) = found("SELECT max(id) FROM celeriac.dead_letters")
    lone, one = ready[0], running[0]
    share = SELECTED // len(accounts)
    points = {"points": json.dumps({account: [0, "2026-01-01", 0] for account in accounts})}
    barriers = [str(uuid.UUID(md5(f"{name}".encode()).hexdigest())) for name in
        ("wide", "body-1", "body-2", *(f"body-{i}" for i in range(3, SELECTED)))]  # fmt: skip
    keys = ["held", *(f"key-{i}" for i in range(SELECTED)), *(f"look-{i}" for i in range(20))]
    unkeyed = {"args": "[]", "kwargs": "{}", "headers": None, "unique_key": None}
    keyed = ready_row(new_task(unique_key="new"))
    fresh = [new_task(lock_key=f"new {i}", unique_key=f"new {i}") for i in range(SELECTED)]
    taken = [new_task("keyed", unique_key=f"h{i}") for i in range(SELECTED)]
    outcome = {"token": TOKEN, "retry_count": 0, "tries": 0, "keep": True, "delay": 0}
    settled = {status: json.dumps([outcome | {"id": i, "status": status} for i in running])
        for status in ("completed", "failed", "pending")}  # fmt: skip
    task_ids = [f"ready-{i}" for i in range(1, SELECTED)]
    passed = {"by": "", "free": 1, "claimants": "[]", "given": "{}", "before": "", "after": "", "took_ms": 1}
    aging = {"after": 0, "every": 300, "step": 10, "ceiling": 49, "few": 2, "levels": SELECTED}
    line = {"id": 1, "role": "work", "account": "deep", "lock_key": "held", "priority": 0, "most": SELECTED}
    line |= {"scheduled_for": "2100-01-01"}
    slots = {"free": SELECTED, "accounts": SELECTED, "most": SELECTED, "holding": '{"q2": 3}'}
    parts = dict.fromkeys(("statuses", "waits_for", "silent", "role", "barrier", "after"))
    parts |= {"workflow": "whole", "most": SELECTED, "looks_at": SELECTED}
    released = {"tokens": [TOKEN, *silent], "only": None, "started": True, "kind": "rescue", "loss": True} | by
    # Where the long history is not: a fold costs what ended in its minute.
    (since, until) = connection.exec_driver_sql("SELECT now() - interval '4 min', now() - interval '3 min'").one()
    began = connection.exec_driver_sql("SELECT now() - interval '1 hour'").scalar_one()
    minute = {"since": since, "until": until, "bounds": list(BOUNDS)}
    return {
        "seam.results.META": [{"task_ids": ["ready-1", "done-1"]}, {"task_ids": task_ids}],
        "seam.results.OVER": [{"task_ids": ["ready-1", *(f"done-{i}" for i in range(SELECTED))]}],
        "seam.results.FAILED": [{"task_ids": ["ready-1", *(f"done-{i}" for i in range(SELECTED))]}],
        "seam.results.CHILDREN": [{"id": lone}],
        "seam.results.FORGET": [{"task_id": "done-1"}],
        "seam.results.TELL": [{"task_id": "ready-1", "progress": "{}"}],
        "canvas.join.MEMBERS": [{"barrier": barriers[2]}],
        "store.look.LET_THROUGH": [{"barriers": barriers}],
        "store.look.JOINS": [{"batch": SELECTED}],
        "settle.tombstones.BURY": [
            {
                "tombstones": json.dumps(
                    [
                        {
                            "task_id": f"never {i}",
                            "role": "work",
                            "args": [],
                            "kwargs": {},
                            "headers": {},
                            "workflow": "w",
                            "barrier": barriers[1],
                        }
                        for i in range(10)
                    ]
                )
            }
        ],
        "repair.hand_over.BARRIERS": [{"first": str(uuid.UUID(int=0)), "batch": SELECTED}],
        "repair.prune.DELIVERED": [work | {"after": None, "batch": SELECTED}],
        "enqueue.gates.CLOSE": [{"gates": ["none"], "places": 1}],
        "repair.prune.NEEDED_OF_DAY": [{"began": "today", "ended": "tomorrow"}],
        "enqueue.insert.INSERT": [{"rows": insert.as_json(fresh)}],
        "enqueue.insert.INSERT_NAMED": [{"rows": insert.as_json(fresh)}],
        "enqueue.ready.INSERT_READY": [keyed],
        "enqueue.ready.INSERT_KEYLESS": [ready_row(new_task()) | unkeyed],
        "enqueue.ready.INSERT_ALIKE": [alike_row([new_task(account=account) for account in accounts])],
        "enqueue.insert.EXISTING": [{"rows": insert.keys_as_json(taken)}],
        "enqueue.insert.FINISHED": [{"task_ids": [f"done-{i}" for i in range(SELECTED)]}],
        "enqueue.insert.STILL_BEHIND": [{"ids": ready}, {"ids": heads}],
        "enqueue.insert.UNDO": [{"ids": ready}, {"ids": heads}],
        "enqueue.insert.AGAIN": [{"task_ids": [f"done-{i}" for i in range(SELECTED)]}],
        "enqueue.insert.MAKE_WAY": [{"role": "keyed", "unique_key": "h1", "by": ""}],
        "enqueue.adopted.NOTE": [
            {"task_ids": [f"{which}-{i}" for i in range(SELECTED // 2) for which in ("adopted", "new")]}
        ],
        "enqueue.adopted.BURY": [
            letter.row() for letter in (Letter(b"new", "x"), Letter(b"base 1", "x", "work", args=[1]))
        ],
        "enqueue.outbox.PUT": [{"tasks": "[{}]"}],
        "enqueue.outbox.TAKE": [{"after": 0}],
        "enqueue.outbox.ADMITTED": [{"id": 1}],
        "enqueue.outbox.DROP": [{"task_ids": ["none"], "parents": [0]}],
        "dispatch.claim.CLAIM": [
            work | {"accounts": accounts, "slots": [share] * len(accounts)},
            work | {"accounts": accounts[:1], "slots": [SELECTED]},
        ],
        "dispatch.claim.CLAIM_BEHIND": [
            work | points | {"accounts": accounts, "slots": [share] * len(accounts)},
            work | points | {"accounts": accounts[:1], "slots": [SELECTED]},
        ],
        "dispatch.claim.RESUME": [{"ids": ready, "room": SELECTED, "share": SELECTED, "holding": "{}"}],
        "dispatch.record.RECORD": [work | passed | points | {"held_since": "2026-01-01", "seconds": 1}],
        "dispatch.record.STILL_HELD": [work | {"held_since": "2026-01-01"}],
        "dispatch.record.REPEAT": [{"last_pass": 1, "why": "", "took_ms": 1}],
        "dispatch.record.NOTHING": [work | passed | {"why": ""}],
        "dispatch.parking.PARK": [work | {"accounts": ["q1"], "batch": SELECTED}],
        "dispatch.parking.UNPARK": [{"batch": SELECTED}],
        "dispatch.promote.DUE": [
            work | {"batch": batch, "quiet": 20, "cursor": cursor}
            for batch, cursor in ((SELECTED, ""), (SELECTED, "m5"), (2000, ""))
        ],
        "dispatch.promote.ROLES_WITH_DUE": [{}],
        "dispatch.promote.HAS_DUE": [work, {"role": "nothing of it"}],
        "dispatch.select.SURVEY": [work | {"queue": "work"}],
        "dispatch.select.CLAIMANTS": [
            work | {"cursor": cursor, "accounts": SELECTED, "depth": depth}
            for cursor, depth in (("m5", 16), ("", 16), ("z", SELECTED))
        ],
        "dispatch.select.CLAIMANTS_BEHIND": [
            work | points | {"cursor": cursor, "accounts": SELECTED, "depth": SELECTED} for cursor in ("m5", "", "z")
        ],
        "dispatch.select.WAITING": [work | {"accounts": accounts, "depth": SELECTED}],
        "dispatch.select.LOWER": [work | points | {"accounts": accounts}],
        "dispatch.select.FRONTS": [work | {"accounts": accounts}],
        "dispatch.select.WAITING_BEHIND": [work | points | {"accounts": accounts, "depth": SELECTED}],
        "dispatch.select.READY": [work, {"role": "nothing of it"}],
        "dispatch.select.PARKED": [work, {"role": "nothing of it"}],
        "dispatch.room.WORK_AND_ROOM": [
            {"role": role, "queue": role, "below": 1500, "size": 2000} for role in ("work", "nothing of it")
        ],
        "dispatch.select.REFILLS": [{"roles": ["work", "nothing of it"]}],
        "run.lease.STANDING": [{"id": one, "token": TOKEN}],
        "run.log.KEEP": [
            {"task": 1, "attempt": 1, "lines": '[{"at": "2026-01-01T00:00:00Z", "level": "INFO", "line": "x"}]'}
        ],
        "run.lease.PROGRESS": [{"id": one, "token": TOKEN, "progress": "1"}],
        "run.lease.RUNNING": [w | {"id": one}],
        "run.lease.ASKED": [{"ids": running, "tokens": [TOKEN]}, {"ids": [one], "tokens": [TOKEN, *silent]}],
        "run.start.START": [work | w | {"token": TOKEN, "again": True}],
        "run.start.OWN": [{"ids": running, "token": TOKEN}],
        "run.start.START_FEW": [
            work | w | {"token": TOKEN, "most": most, "few": 10**6, "worth": 1.0, "suspect": 2} for most in (1, 16)
        ],
        "settle.release.RELEASE": [released, released | {"only": running[:10]}],
        "settle.release.STALE": [{"batch": 20, "minutes": None}],
        "settle.write.SETTLE": [{"by": "", "tokens": [TOKEN], "outcomes": outcomes} for outcomes in settled.values()],
        "settle.write.COMPLETE": [
            {"ids": some, "token": TOKEN, "results": ["1"] * len(some), "keep": True} for some in (running, [one])
        ],
        "settle.late_finish.REFUSED": [
            {"late": json.dumps([{"id": i, "role": "work"} for i in (lone, failed[0])]), "by": "", "again": again}
            for again in (False, True)
        ],
        "repair.aging.AGE": [aging | {"role": role, "account": "", "priority": 0} for role in ("", "work")],
        "repair.hand_over.HEADS": [{"first": first, "batch": SELECTED} for first in ("", "key-5")],
        "repair.hand_over.ORPHANED": [{"keys": keys}],
        "repair.hand_over.GIVE_WAY": [{"ids": heads}],
        "repair.prune.TASKS": [
            work | {"after": after, "since": since, "batch": SELECTED}
            for after, since in ((None, "now"), (None, "2020-01-01"), ("yesterday", "now"))
        ],
        "repair.prune.UNDECLARED": [{}],
        "repair.minutes.ENQUEUED": [{"after": ready[0], "upto": ready[-1], "forgets": []}],
        **{f"repair.minutes.{what}": [minute] for what in ("ENDED", "RUNS", "RETRIED")},
        "repair.minutes.SEE": [{}],
        "repair.minutes.STARTED": [{"roles": ["work"], "minutes": [since], "counts": [1]}],
        "repair.minutes.TELL": [minute | {"told": json.dumps([{"role": "work"} | asdict(Minute())])}],
        "repair.prune.ROLES_OF_DAY": [{"began": "today", "ended": "tomorrow"}],
        **{
            f"repair.prune.{what}": [
                {"after": None, "days": 0, "batch": SELECTED},
                {"after": "yesterday", "days": 0, "batch": SELECTED},
                {"after": None, "days": 1, "batch": SELECTED},
            ]
            for what in ("EVENTS", "LOGS", "PASSES", "ADOPTED", "DEAD_LETTERS", "MINUTES")
        },
        "repair.prune.LEFT_OF_BULKS": [{"after": None, "batch": SELECTED}],
        "repair.ring.STATE": [{}],
        "insights.figures.OUTBOX_TASKS": [{"most": SELECTED}],
        "insights.counting.BACKLOGS": [{"most": SELECTED}],
        "insights.figures.RECENT": [{"most": SELECTED}],
        "insights.figures.WAITING": [{"most": SELECTED}],
        "insights.rounds.LAST": [{"role": role, "most": SELECTED, "largest": 65_536} for role in (None, "work")],
        "insights.left_ready.LEFT": [{"patience": 60, "good": ["the window is full"], "most": SELECTED}],
        "insights.watched.LETTERS": [{"most": SELECTED}],
        "insights.watched.TROUBLE": [{"most": SELECTED}],
        "insights.watched.OLDEST": [{"most": SELECTED}],
        "insights.watched.ROLES": [{"samples": 0, "most": SELECTED, "newest": SELECTED}],
        "repair.review.REVIEW": [{"by": "", "counted": SELECTED, "done": "{}"}],
        "schedules.tick.IS_UNFINISHED": [{"task_id": "ready-1"}],
        "schedules.tick.ADVANCE": [
            dict.fromkeys(("planned_as", "last_run_at", "last_task_id", "why"))
            | {
                "id": schedule,
                "next_run_at": until,
                "skipped": 0,
                "ticks": json.dumps(
                    [{"due_at": "2026-01-01T00:00:00Z", "task_id": "ready-1", "is_new": True, "left_out": 0}]
                ),
            }
        ],
        "schedules.tick.QUARANTINE": [{"id": schedule, "why": "x"}],
        "repair.prune.TICKS": [
            {"days": days, "kept": SELECTED, "batch": SELECTED, "after": after}
            for days in (0, 1)
            for after in (None, [str(schedule), "2026-01-01"])
        ],
        "run.samples.SAMPLE": [{"worker_id": "w", "memory": 1, "cpu": 1, "reason": reason} for reason in (None, "x")],
        "repair.prune.SAMPLES": [{"days": days, "batch": SELECTED, "after": None} for days in (1 / 24, 300)],
        "insights.hours.SAMPLES": [{"worker_id": "w", "most": SELECTED}],
        "insights.hours.DONE": [{"newest": SELECTED}],
        "insights.ticks.TICKS": [
            {"schedule": schedule, "due": due, "done": due, "most": SELECTED} for due in (None, until)
        ],
        "insights.ticks.STRIPS": [{"schedules": [schedule, 0], "most": SELECTED}],
        "insights.ticks.MISSED": [{"schedules": [schedule, 0], "most": SELECTED}],
        "insights.ticks.OUTCOMES": [
            {"task_ids": some, "since": [began] * len(some)}
            for some in (task_ids, [f"done-{i}" for i in range(1, SELECTED)], ["active-1", "none"])
        ],
        "insights.ticks.LATENESS": [{"schedule": None, "most": SELECTED}],
        "insights.ticks.LATENESS_OF": [{"schedule": schedule, "most": SELECTED}],
        "operate.edit.EDIT": [{"id": lone, "was": "{}", "kwargs": '{"n": 1}', "by": "x", "why": ""}],
        "operate.policies.KNOWN": [{"account": account, "most": SELECTED} for account in ("nobody", accounts[0])],
        "operate.audit.WRITE": [{"action": "", "kind": "", "changes": "[]", "via": "SQL"} | by],
        "operate.cancel.CANCEL": [
            by | {"task_ids": task_ids, "parents": None},
            by | {"task_ids": ["active-1", "next-1", "due-1"], "parents": None},
            by | {"task_ids": task_ids, "parents": [0]},
        ],
        "operate.bulks.GATHER": [{"bulk": 1, "ids": failed, "place": None}],
        "operate.bulks.TAKE": [{"bulk": 1, "after": after, "batch": SELECTED} for after in (0, 50)],
        "operate.dead_letters.TAKE": [{"id": letter}],
        "operate.hasten.HASTEN": [{"task_id": "due-1", "by": ""}],
        "operate.prioritise.HOLD": [
            {"task_id": task_id, "only_waiting": only_waiting}
            for task_id in ("ready-1", "active-1", "next-1")
            for only_waiting in (False, True)
        ],
        "operate.prioritise.HELD": [{"id": lone}],
        "operate.prioritise.PRIORITISE": [
            by | {"wanted": json.dumps([{"id": i, "priority": 9} for i in some])} for some in (ready, ids("next"))
        ],
        # Ten each: it looks in every room for each of them, a level deeper in each of the larger indexes.
        "operate.steer.HOLD": [{"ids": some[:10]} for some in (ready, running, ids("next"), ids("resumed"), failed)],
        "operate.steer.HELD": [{"ids": some, "low": 0, "high": 0} for some in (ready, failed)],
        "operate.revoke.HOLD": [{"task_ids": task_ids[:10]}],
        "operate.revoke.REVOCABLE": [{"task_ids": task_ids, "terminate": yes} for yes in (True, False)],
        "operate.revoke.STAMPED": [{"stamps": '{"by": ["nobody"]}'}],
        "operate.steer.RETRY": [by | {"ids": failed, "goes_on": False}],
        "operate.workflows.OPEN": [
            {"workflow": "whole", "waiting": yes, "after": after, "looks_at": SELECTED}
            for yes in (True, False)
            for after in (0, running[9])
        ],
        "operate.workflows.DROP": [{"workflow": "whole"}],
        "insights.workflows.HAS_PARTS": [{"workflow": workflow} for workflow in ("whole", "none")],
        "insights.workflows.SHAPE": [{"workflow": "whole", "most": SELECTED}],
        "insights.workflows.HELD": [{"workflow": "whole", "roles": ["work", "nothing"]}],
        "insights.workflows.BODIES": [{"barriers": barriers}],
        "insights.workflows.PARENTS": [{"workflow": "whole", "ids": some} for some in (running, failed)],
        "insights.workflows.PARTS": [parts, parts | {"after": str(failed[9]), "barrier": barriers[2]}],
        "insights.workflows.END": [parts],
        "insights.account.OF_ROLES": [{"account": "q1", "most": SELECTED, "newest": SELECTED}],
        "insights.account.FIRST": [{"account": "q1", "most": SELECTED, "told": 10}],
        "insights.accounts.ENDED": [
            {"account": account, "newest": SELECTED, "accounts": SELECTED} for account in (None, "q1")
        ],
        **{
            f"insights.minutes.{what}": [work | {"step": 60, "since": began, "until": until, "origin": began}]
            for what in ("FLOW", "FLOW_OF", "ENDED", "LENGTHS", "AGAIN", "AGAIN_OF")
        },
        "insights.minutes.BEYOND": [{"since": began, "until": until, "most": SELECTED}],
        "insights.counting.COUNTS": [{"most": SELECTED}],
        "insights.counting.COUNTS_OF_ROLE": [work | {"most": SELECTED}, {"role": "nothing of it", "most": SELECTED}],
        "insights.counting.WAITING": [{"most": SELECTED}],
        "insights.counting.WAITING_OF_ROLE": [work | {"most": SELECTED}, {"role": "nothing of it", "most": SELECTED}],
        "insights.counting.DEPTH": [{"most": SELECTED, "look": SELECTED, "role": role} for role in (None, "work")],
        "insights.dead_letters.LIST": [{"before": before, "most": SELECTED} for before in (None, letter)],
        "insights.dead_letters.LIST_OF": [
            {"name": "work", "before": before, "most": SELECTED} for before in (None, letter)
        ],
        "insights.dead_letters.LETTER": [{"id": letter, "shown": 1}],
        "insights.ended.SINCE": [
            {"after": 0, "lag": 1.0, "most": SELECTED, "settled": ["retry"], "back": ["lost"], "over": ["failed"]}
        ],
        "insights.ended.LAST": [{}],
        "insights.marks.RETRYING": [{"roles": ["work", "nothing of it"], "most": SELECTED}],
        "insights.failures.WALK": [
            {"role": role, "since": since, "before": before, "most": SELECTED}
            for role, since, before in ((None, None, None), ("work", None, failed[9]), ("work", 3600.0, None))
        ],
        "insights.failures.TRACEBACKS": [
            {
                "ids": failed,
                "times": found(f"SELECT completed_at FROM celeriac.history WHERE id = ANY ('{{{failed_ids}}}')"),
            }
        ],
        "insights.lists.MOMENT": [{}],
        "insights.locks.WAITED_FOR": [{"most": SELECTED}],
        "insights.locks.HELD": [{"most": SELECTED}],
        "insights.locks.LOCKS": [{"keys": keys, "cap": SELECTED}],
        "insights.locks.QUEUE": [{"lock_key": key, "most": SELECTED} for key in ("held", "key-1")],
        "insights.unique_keys.TAKEN": [
            {"role": role, "key": key, "most": SELECTED} for role, key in ((None, None), ("work", "a"), ("x", ""))
        ],
        "insights.unique_keys.TAKEN_OF_ROLE": [
            {"role": role, "key": key, "most": SELECTED} for role, key in (("work", None), ("nothing of it", "a"))
        ],
        "insights.ran.RAN": [work | {"after": began, "id": 0, "until": until, "most": SELECTED}],
        "insights.shares.WAITING": [
            {"role": role, "accounts": SELECTED, "most": 2} for role in (None, "work", "nothing of it")
        ],
        "insights.shares.OF_ACCOUNT": [{"account": "q1", "most": SELECTED}],
        "insights.shares.PARKED": [{"role": role, "accounts": SELECTED, "most": SELECTED} for role in (None, "work")],
        "insights.held.HELD": [{"worker_id": worker, "tokens": [TOKEN], "most": SELECTED} for worker in ("w", "x")],
        "insights.held.LATER": [{"roles": ["work", "nothing"], "most": SELECTED}],
        "insights.held.WHICH_OF": [
            {"task_ids": task_ids, "worker_id": "w", "tokens": [TOKEN], "roles": ["work"]},
            {"task_ids": ["active-1", "next-1", "due-1"], "worker_id": "w", "tokens": [TOKEN], "roles": ["work"]},
        ],
        "insights.held.CANCELLED": [{"roles": ["work", "nothing"], "most": SELECTED}],
        "insights.lines.MEMBERS": [{"id": ids("body")[0], "most": SELECTED}],
        "insights.lines.AHEAD_OF_LOCK": [line],
        "insights.lines.BEHIND": [line],
        "insights.lines.AHEAD_IN_ACCOUNT": [line],
        "insights.lines.OTHERS_FIRST": [
            work | {"account": account, "cursor": cursor, "level": level} | slots
            for account, cursor, level in (("deep", "", 0), ("deep", "", 1000), ("q2", "m5", 0), ("q2", "z", 3.5))
        ],
        "insights.attempts.CHILDREN": [{"id": lone, "most": SELECTED}],
        "insights.attempts.TRACEBACK": [{"id": failed[0]}],
        "insights.condition.RETRIES": [{"late": 60, "most": SELECTED}],
        "insights.situation.STANDING": [work | {"account": "q1"}, {"role": "nothing of it", "account": ""}],
        "insights.situation.HOLDING": [work | {"claimed_at": "2026-01-01"}],
        "insights.situation.HEAD": [{"lock_key": "key-1"}],
        "insights.system.PASSES": [work | {"before": None, "most": SELECTED}],
        "insights.trail.LOOKED": [{"before": None, "look": SELECTED}],
        "insights.trail.ENTRIES": [
            {
                "before": None,
                "oldest": found("SELECT max(id) - 50 FROM celeriac.audit")[0],
                "by": "nobody",
                "action": None,
                "kind": None,
                "target": None,
                "via": None,
                "newer_than": None,
                "most": SELECTED,
            }
        ],
        "insights.system.AUDIT": [{"before": None, "most": SELECTED}],
        "insights.system.AUDIT_OF": [{"kind": "role", "target": "work", "before": None, "most": SELECTED}],
        "insights.idle.IDLE": [work],
        "insights.attempts.RUNS": [work | {"most": 60}],
        "insights.log.LOG": [{"id": 1, "most": SELECTED}],
        "insights.tasks.TASK": [{"id": lone}, {"id": failed[0]}],
        "insights.tasks.CALL": [{"id": lone}, {"id": failed[0]}],
        "insights.tasks.ID_OF": [{"task_id": "ready-1"}, {"task_id": "done-1"}],
        "insights.tasks.ROWS_OF": [{"given": ["ready-1", "done-1"], "ids": [lone, failed[0]]}],
        "insights.tasks.EVENTS": [{"id": 1, "most": SELECTED}],
        "insights.gone.ROLE_OF": [{"id": 1}],
        "insights.pace.PACE": [work | {"minutes": 10}],
        "insights.system.PASSES_OF_ALL": [{"before": None, "most": SELECTED}],
        "insights.tasks.ACTIVE_UNDER": [{"lock_key": "key-1"}],
        "insights.tasks.UNFINISHED": [{"role": "keyed", "unique_key": "h1"}],
        "insights.tasks.LAST_COMPLETION": [work | {"looks_at": 1}],
        "insights.under_way.UNDER_WAY": [{"after": "", "most": 10, "counted": SELECTED}],
        "store.look.HAND_OVER": [{"keys": keys}],
        "store.look.ASKED": [{"batch": SELECTED}],
        **pages(),
    }


def pages() -> Mapping[str, list[Given]]:
    """Pages of 60, looking at no more than 60, of all roles and of one."""
    kinds = (
        "lock_key",
        "unique_key",
        "worker_id",
        "waits_for",
        "older_than",
        "newer_than",
        "error",
        "arguments",
        "account",
        "after",
        "upto",
        "until",
        "silent",
        "lowest",
        "highest",
        "schedule",
    )
    unasked = dict.fromkeys(kinds)
    bounds = {"most": SELECTED, "looks_at": SELECTED, "offset": 0}

    def asked(part: tuple[str, ...]) -> list[Given]:
        of_any = [unasked | bounds | {"role": role, "statuses": list(part)} for role in (None, "work")]
        few = {"lowest": 5, "highest": 9, "schedule": "nightly"}
        return [*of_any, of_any[0] | {"silent": True}, *(one | few for one in of_any)]

    told = {f"{of} of {part}": asked(part) for part in lists.PAGES for of in ("page", "ids", "end")}
    return told | {f"ids of the walk of {part}": asked(part) for part in lists.IDS_OF_WALK}


def measured(connection: Connection) -> Measured:
    return {
        f"{name}, {n}": rolled_back(connection, name, one)
        for name, given in statements(connection).items()
        for n, one in enumerate(given, start=1)
    }


#: Of those rooms, what the engine executes with the planner as it is.
AS_USUAL = {
    "operate.hasten.HASTEN", "operate.prioritise.HELD", "operate.prioritise.HOLD", "operate.steer.HOLD",
    "repair.aging.AGE", "repair.prune.ROLES_OF_DAY", "repair.review.REVIEW",
    "repair.ring.STATE",
}  # fmt: skip


def by_lookups(name: str) -> bool:
    """Whether the engine executes it so."""
    return name not in AS_USUAL and (
        name.startswith(("insights.", "metrics.", "operate.", "repair.", "canvas.", "page of", "ids of", "end of"))
        or name in ("dispatch.parking.PARK", "dispatch.parking.UNPARK")
        or name in ("insights.watched.LETTERS", "insights.watched.TROUBLE", "insights.watched.OLDEST")
        or name == "insights.watched.ROLES"
        or name in ("dispatch.claim.RESUME", "dispatch.promote.DUE", "enqueue.insert.EXISTING")
        or name in ("enqueue.gates.CLOSE", "enqueue.insert.STILL_BEHIND", "enqueue.insert.AGAIN")
        or name in ("seam.results.META", "seam.results.CHILDREN", "seam.results.OVER", "seam.results.FAILED")
    )


DELETED_IN_ORDER = {
    f"repair.prune.{what}"
    for what in ("TASKS", "DELIVERED", "EVENTS", "PASSES", "ADOPTED", "DEAD_LETTERS", "MINUTES", "LEFT_OF_BULKS")
}


def in_order(name: str) -> bool:
    """Whether it is part of a pass, which plans so."""
    return name in DELETED_IN_ORDER or name.startswith(
        ("dispatch.claim.CLAIM", "dispatch.select.", "dispatch.room.", "dispatch.record.")
    )


def rolled_back(connection: Connection, name: str, given: Given) -> Plan:
    statement = MEET_ROOMS[name]
    savepoint = connection.begin_nested()
    if by_lookups(name):
        connection.exec_driver_sql(BY_LOOKUPS)
    if in_order(name):
        connection.exec_driver_sql(IN_ORDER)
    if name.startswith("dispatch.claim.CLAIM"):
        connection.exec_driver_sql(BY_HASHES)
    plan = explain(connection, statement, **{p: given[p] for p in statement._bindparams})
    savepoint.rollback()
    return plan


def complaints(small: Measured, large: Measured) -> list[str]:
    scans = [f"{name} reads {r}:\n{p}" for m in (small, large) for name, p in m.items() if (r := reads_all(p))]
    grows = [name for name in small if large[name].pages > 1.5 * small[name].pages + ALLOWED]
    return scans + [f"{n} grows from {small[n].pages} to {large[n].pages} pages:\n{large[n]}" for n in grows]


def reads_all(plan: Plan) -> dict[str, int]:
    """The rooms, or parts of one, that were read from end to end."""
    return {table: rows for table, rows in plan.read.items() if is_large(table) and rows > FEW}


def plans(url: str, shape: str, n: int, *, believes: str) -> list[Measured]:
    engine = create_engine(url)
    with engine.connect() as connection:
        if believes == "it is idle":
            analyze_while_idle(connection)
        fill(connection, shape, n)
        taken = [measured(connection)]
        if believes == "nothing, then the truth":
            analyze(connection)
            taken.append(measured(connection))
    engine.dispose()
    return taken


def test_every_statement_that_meets_a_room_is_explained(database: Database) -> None:
    """A new statement fails here until it has an entry in `statements`, or a reason in `EXCEPT`."""
    with database.engine.connect() as connection:
        fill(connection, "one deep account", 10)
        explained = statements(connection)
    assert set(MEET_ROOMS) - EXCEPT == set(explained)
    assert set(MEET_ROOMS) >= EXCEPT
    assert all(explained.values())


def test_every_table_of_the_engine_is_large_or_known_to_be_short(database: Database) -> None:
    with database.statement() as connection:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = 'celeriac'"
        tables = set(connection.exec_driver_sql(names).scalars())
    assert {table for table in tables if not is_large(table)} == SHORT | {"version"}


@pytest.mark.parametrize("believes", ["nothing, then the truth", "it is idle"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_statement_reads_the_backlog(clone: Clone, shape: str, believes: str) -> None:
    small = plans(clone(), shape, SMALL, believes=believes)
    large = plans(clone(), shape, LARGE, believes=believes)
    for s, g in zip(small, large, strict=True):
        assert complaints(s, g) == []
