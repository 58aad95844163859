"""What the statements are asked for that take tasks through their lives and clear up after them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import md5

from celeriac.enqueue import insert
from celeriac.enqueue.adopted import Letter
from celeriac.enqueue.ready import alike_row, ready_row
from celeriac.insights.history.histogram import BOUNDS
from celeriac.repair.minutes import Minute
from tests.postgres.backlog import TOKEN
from tests.postgres.conftest import new_task
from tests.postgres.parameters.selected import SELECTED, Given, Selected


def of_tasks(there: Selected) -> Mapping[str, list[Given]]:
    work, w, by = {"role": "work"}, {"worker_id": "w", "pid": 1}, {"by": "", "why": ""}
    accounts, running, silent, failed = there.accounts, there.running, there.silent, there.failed
    ready, heads, schedule, barriers = there.ready, there.heads, there.schedule, there.barriers
    keys, task_ids, since, until = there.keys, there.task_ids, there.since, there.until
    lone, one = ready[0], running[0]
    points = {"points": json.dumps({account: [0, "2026-01-01", 0] for account in accounts})}
    share = SELECTED // len(accounts)
    unkeyed = {"args": "[]", "kwargs": "{}", "headers": None, "unique_key": None}
    keyed = ready_row(new_task(unique_key="new"))
    fresh = [new_task(lock_key=f"new {i}", unique_key=f"new {i}") for i in range(SELECTED)]
    taken = [new_task("keyed", unique_key=f"h{i}") for i in range(SELECTED)]
    outcome = {"token": TOKEN, "retry_count": 0, "tries": 0, "keep": True, "delay": 0}
    settled = {status: json.dumps([outcome | {"id": i, "status": status} for i in running])
        for status in ("completed", "failed", "pending")}  # fmt: skip
    held = {"held_since": "2026-01-01", "held_next": "2026-01-01", "held_xid": "1"}
    passed = {"by": "", "free": 1, "claimants": "[]", "given": "{}", "before": "", "after": "", "took_ms": 1}
    aging = {"after": 0, "every": 300, "step": 10, "ceiling": 49, "few": 2, "levels": SELECTED}
    released = {"tokens": [TOKEN, *silent], "only": None, "started": True, "kind": "rescue", "loss": True} | by
    day = {"began": "today", "ended": "tomorrow"}
    minute = {"since": since, "until": until, "bounds": list(BOUNDS)}
    return {
        "seam.results.META": [{"task_ids": ["ready-1", "done-1"]}, {"task_ids": task_ids}],
        "seam.results.OVER": [{"task_ids": ["ready-1", *(f"done-{i}" for i in range(SELECTED))]}],
        "seam.results.PROGRESS": [{"task_ids": ["ready-1", "done-1"]}, {"task_ids": task_ids}],
        "seam.results.FAILED": [{"task_ids": ["ready-1", *(f"done-{i}" for i in range(SELECTED))]}],
        "seam.results.CHILDREN": [{"id": lone}],
        "seam.results.FORGET": [{"task_id": "done-1"}],
        "seam.results.TELL_OF": [{"task_id": "ready-1", "progress": "{}"}],
        "seam.results.TELL": [{"task_id": "ready-1", "progress": "{}"}],
        "canvas.rests.BLOCK": [{"chain": str(uuid.UUID(md5(b"chain-1").hexdigest())), "place": 1}],
        "canvas.rests.BLOCKS": [{"chain": str(uuid.UUID(md5(b"chain-1").hexdigest())), "place": 1}],
        "enqueue.rests.KEEP": [
            {"rests": json.dumps([{"chain": str(uuid.uuid4()), "workflow": "new", "blocks": [[{}]] * SELECTED}])}
        ],
        "canvas.join.MEMBERS": [{"barrier": barriers[2]}],
        "store.look.LET_THROUGH": [{"barriers": barriers}],
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
                            "account": "acme",
                            "barrier": barriers[1],
                        }
                        for i in range(10)
                    ]
                )
            }
        ],
        "repair.hand_over.BARRIERS": [{"first": str(uuid.UUID(int=0)), "batch": SELECTED}],
        "repair.prune.DELIVERED": [work | day | {"after": None, "batch": SELECTED}],
        "enqueue.gates.CLOSE": [{"gates": ["none"], "places": 1}],
        "repair.prune.NEEDED_OF_DAY": [{"began": "today", "ended": "tomorrow"}],
        "enqueue.insert.INSERT": [{"rows": insert.as_json(fresh)}],
        "enqueue.insert.INSERT_NAMED": [{"rows": insert.as_json(fresh)}],
        "enqueue.ready.INSERT_READY": [keyed],
        "enqueue.ready.INSERT_KEYLESS": [ready_row(new_task()) | unkeyed],
        "enqueue.ready.INSERT_LONE": [ready_row(new_task()) | unkeyed],
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
        "enqueue.outbox.TAKE": [{"after": 0, "batch": SELECTED}],
        "enqueue.outbox.ADMITTED": [{"ids": [1, 2]}],
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
        "dispatch.record.RECORD": [work | passed | points | held | {"seconds": 1}],
        "dispatch.record.STILL_HELD": [work | held],
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
            {"role": role, "queue": role, "window": window, "ahead": 1.0}
            for role in ("work", "nothing of it")
            for window in (None, 2000)
        ],
        "dispatch.glance.GLANCE": [{"roles": ["work", "nothing of it"], "turn": 0.9}],
        "dispatch.select.REFILLS": [{"roles": ["work", "nothing of it"]}],
        "run.lease.STANDING": [{"id": one, "token": TOKEN}],
        "run.log.KEEP": [
            {"task": 1, "attempt": 1, "lines": '[{"at": "2026-01-01T00:00:00Z", "level": "INFO", "line": "x"}]'}
        ],
        "run.lease.STANDINGS": [{"tokens": [TOKEN]}],
        "run.lease.PROGRESS": [{"id": one, "token": TOKEN, "progress": "1"}],
        "run.lease.RUNNING": [w | {"id": one}],
        "run.lease.BOUNDS": [{"id": one}],
        "run.lease.ASKED": [{"ids": running, "tokens": [TOKEN]}, {"ids": [one], "tokens": [TOKEN, *silent]}],
        "run.start.UNHEARD": [work],
        "run.start.START": [work | w | {"token": TOKEN, "again": True}],
        "run.start.OWN": [{"ids": running}],
        "run.start.START_FEW": [
            work | w | {"token": TOKEN, "most": most, "few": 10**6, "worth": 1.0, "suspect": 2} for most in (1, 16)
        ],
        "settle.release.RELEASE": [released, released | {"only": running[:10]}],
        "settle.release.STALE": [
            {"batch": 20, "minutes": None, "after_at": at, "after_token": token}
            for at, token in ((None, None), ("2026-01-01T00:00:00Z", TOKEN))
        ],
        "settle.release.UNLOCKED": [{"tokens": [TOKEN, *silent]}],
        "settle.write.SETTLE": [{"by": "", "tokens": [TOKEN], "outcomes": outcomes} for outcomes in settled.values()],
        "settle.write.COMPLETE": [
            {"ids": some, "token": TOKEN, "results": ["1"] * len(some), "keep": True} for some in (running, [one])
        ],
        "settle.write.REFUSED": [
            {"late": json.dumps([{"id": i, "role": "work"} for i in (lone, failed[0])]), "by": "", "again": again}
            for again in (False, True)
        ],
        "repair.aging.AGE": [aging | {"role": role, "account": "", "priority": 0} for role in ("", "work")],
        "repair.hand_over.HEADS": [{"first": first, "batch": SELECTED} for first in ("", "key-5")],
        "repair.hand_over.ORPHANED": [{"keys": keys}],
        "repair.hand_over.GIVE_WAY": [{"ids": heads}],
        "repair.prune.TASKS": [
            work | day | {"after": after, "since": since, "batch": SELECTED}
            for after, since in ((None, "now"), (None, "2020-01-01"), ("yesterday", "now"))
        ],
        "repair.prune.OPEN": [{}],
        "repair.prune.PAST": [{"roles": ["work", "archive"], "since": [there.began, there.began], "most": SELECTED}],
        "repair.prune.WITH_MEMBERS": [{"roles": ["work", "archive"], "most": SELECTED}],
        "repair.prune.DROPPABLE": [{"days": ["2026-01-01"]}],
        "repair.days.BEGIN_CLOSING": [{}],
        "repair.days.FOLD": [{"most": SELECTED}],
        "repair.prune.RESTS": [
            {"after": "00000000-0000-0000-0000-000000000000", "batch": SELECTED, "seconds": seconds}
            for seconds in (0.0, 86_400.0)
        ],
        "repair.prune.LEFT_BEHIND": [{"day": "today", "after": None, "batch": SELECTED}],
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
        "run.reported.SAMPLE": [{"worker_id": "w", "memory": 1, "cpu": 1, "reason": reason} for reason in (None, "x")],
        **{
            f"repair.prune.{what}": [{"days": days, "batch": SELECTED, "after": None} for days in (1 / 24, 300)]
            for what in ("SAMPLES", "TICKET_SAMPLES")
        },
        "repair.ticket_samples.SAMPLE": [
            {"samples": '[{"queue": "work", "tickets": 1}, {"queue": "q1", "tickets": 1}]'}
        ],
        "store.look.HAND_OVER": [{"keys": keys}],
        "store.look.LISTED": [{"batch": SELECTED}],
        "store.look.TAKE": [{"seconds": 1.0}],
    }
