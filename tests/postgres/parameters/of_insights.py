"""What the statements are asked for that only read."""

from __future__ import annotations

from collections.abc import Mapping

from celeriac.insights.tasks import lists
from tests.postgres.backlog import TOKEN
from tests.postgres.parameters.selected import SELECTED, Given, Selected


def of_insights(there: Selected) -> Mapping[str, list[Given]]:
    work = {"role": "work"}
    running, failed, schedule, letter = there.running, there.failed, there.schedule, there.letter
    barriers, keys, task_ids = there.barriers, there.keys, there.task_ids
    until, began = there.until, there.began
    hour = {"begun": began, "ahead": there.ahead}
    lone = there.ready[0]
    failed_ids = ",".join(map(str, failed))
    line = {"id": 1, "role": "work", "account": "deep", "lock_key": "held", "priority": 0, "most": SELECTED}
    line |= {"scheduled_for": "2100-01-01"}
    slots = {"free": SELECTED, "accounts": SELECTED, "most": SELECTED, "holding": '{"q2": 3}'}
    parts = dict.fromkeys(("statuses", "waits_for", "silent", "role", "barrier", "after"))
    parts |= {"workflow": "whole", "most": SELECTED, "looks_at": SELECTED}
    return {
        "insights.figures.OUTBOX": [{"most": SELECTED}],
        "insights.counting.BACKLOGS": [{"most": SELECTED}],
        "insights.figures.RECENT": [hour | {"most": SELECTED}],
        "insights.figures.WAITING": [{"most": SELECTED}],
        "insights.rounds.IN_LINE": [{"longest": 10.0, "runs": 3, "most": SELECTED}],
        "insights.rounds.LAST": [{"role": role, "most": SELECTED, "largest": 65_536} for role in (None, "work")],
        "insights.watched.LEFT": [{"patience": 60, "good": ["the window is full"], "most": SELECTED}],
        "doctor.deploying.WAITING": [{"most": SELECTED}],
        "doctor.deploying.QUEUES": [work | {"most": SELECTED}],
        "doctor.deploying.SHAPES": [work | {"half": SELECTED // 2}],
        "doctor.deploying.LINKS": [work | {"half": SELECTED // 2, "links": SELECTED}],
        "insights.burning.SUSPECTS": [
            hour | {"role": role, "most": SELECTED, "few": 1, "newest": 20, "kinds": ["retry", "failed"]}
            for role in (None, "work")
        ],
        "insights.burning.ERRORS": [work | {"most": SELECTED, "kinds": ["retry", "failed"], "read": SELECTED}],
        "insights.burning.MINUTES": [work],
        "insights.burning.HIT": [hour | {"ids": failed}],
        "insights.failing_accounts.FAILING": [
            hour
            | {
                "roles": SELECTED,
                "most": SELECTED,
                "kinds": ["retry", "failed"],
                "few": 1,
                "over": 60,
                "looked_up": SELECTED,
                "successes": 50,
                "accounts": 20,
            },
        ],
        "insights.slower.CANDIDATES": [
            hour | {"ended": SELECTED, "under_way": SELECTED, "few": 10, "more": 3, "sampled": 35}
        ],
        "insights.slower.RUNS": [hour | {"ended": SELECTED, "under_way": SELECTED, "roles": ["work"]}],
        "insights.slower.HISTOGRAM": [work | {"begin": 1_500, "end": 60}],
        "insights.unfit.SHORT": [{"heard": 120, "most": 20}],
        "store.migrate.RUNS_FROM": [{}],
        "insights.watched.TRANSACTION": [{}],
        "insights.condition.OLD_TRANSACTIONS": [{"seconds": 600, "most": SELECTED}],
        "insights.watched.LETTERS": [{"most": SELECTED}],
        "insights.watched.TROUBLE": [{"most": SELECTED}],
        "insights.watched.OLDEST": [{"most": SELECTED}],
        "insights.watched.ROLES": [hour | {"samples": 0, "most": SELECTED, "newest": SELECTED, "roles": SELECTED}],
        "insights.shares.FLOODS": [{"roles": ["work", "nothing"], "newest": SELECTED, "share": 0.8}],
        "insights.blockers.HOLDERS_OF_ROWS": [{"long": 2, "levels": SELECTED, "looked_up": SELECTED}],
        "insights.watched.SKIPPED": [{}],
        "insights.hours.SAMPLES": [{"worker_id": "w", "most": SELECTED}],
        "insights.hours.DONE": [hour | {"newest": SELECTED}],
        "insights.received.OF_ACCOUNT": [{"account": "q1", "most": SELECTED, "begin": began}],
        "insights.hours.TICKETS": [{"most": SELECTED}],
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
        "insights.workflows.HAS_PARTS": [{"workflow": workflow} for workflow in ("whole", "none")],
        "insights.workflows.SHAPE": [{"workflow": "whole", "most": SELECTED}],
        "insights.workflows.HELD": [{"workflow": "whole", "roles": ["work", "nothing"]}],
        "insights.workflows.BODIES": [{"barriers": barriers}],
        "insights.workflows.PARENTS": [{"workflow": "whole", "ids": some} for some in (running, failed)],
        "insights.workflows.PARTS": [parts, parts | {"after": str(failed[9]), "barrier": barriers[2]}],
        "insights.workflows.END": [parts],
        "insights.account.OF_ROLES": [hour | {"account": "q1", "most": SELECTED, "newest": SELECTED}],
        "insights.account.FIRST": [{"account": "q1", "most": SELECTED, "told": 10}],
        "insights.account.ENDED": [
            hour | {"account": account, "newest": SELECTED, "accounts": SELECTED} for account in (None, "q1")
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
            {"role": role, "begin": begin, "before": before, "most": SELECTED}
            for role, begin, before in ((None, None, None), ("work", None, failed[9]), ("work", began, None))
        ],
        "insights.fingerprints.SAID": [
            {
                "ids": failed,
                "times": there.found(f"SELECT completed_at FROM celeriac.history WHERE id = ANY ('{{{failed_ids}}}')"),
            }
        ],
        "insights.lists.MOMENT": [{}],
        "insights.locks.WAITED_FOR": [{"most": SELECTED}],
        "insights.locks.HELD": [{"most": SELECTED}],
        "insights.locks.LOCKS": [{"keys": keys, "cap": SELECTED}],
        "insights.locks.QUEUE": [{"lock_key": key, "most": SELECTED} for key in ("held", "key-1")],
        "insights.locks.TAKEN": [
            {"role": role, "key": key, "most": SELECTED} for role, key in ((None, None), ("work", "a"), ("x", ""))
        ],
        "insights.locks.TAKEN_OF_ROLE": [
            {"role": role, "key": key, "most": SELECTED} for role, key in (("work", None), ("nothing of it", "a"))
        ],
        "insights.ran.RAN": [work | {"after": began, "id": 0, "until": until, "most": SELECTED}],
        "insights.shares.WAITING": [
            {"role": role, "accounts": SELECTED, "most": 2} for role in (None, "work", "nothing of it")
        ],
        "insights.shares.OF_ACCOUNT": [{"account": "q1", "most": SELECTED}],
        "insights.shares.PARKED": [{"role": role, "accounts": SELECTED, "most": SELECTED} for role in (None, "work")],
        "insights.blockers.ON_TASK": [
            {"id": 1, "token": TOKEN, "role": "work", "account": "", "priority": 0, "due": "2026-01-01"}
        ],
        "insights.shared_slots.AT_WORK": [{}],
        "insights.held.HELD": [{"worker_id": worker, "tokens": [TOKEN], "most": SELECTED} for worker in ("w", "x")],
        "insights.held.LATER": [{"lanes": ["work", "nothing"], "most": SELECTED}],
        "insights.held.WHICH_OF": [
            {"task_ids": task_ids, "worker_id": "w", "tokens": [TOKEN], "lanes": ["work"]},
            {"task_ids": ["active-1", "next-1", "due-1"], "worker_id": "w", "tokens": [TOKEN], "lanes": ["work"]},
        ],
        "insights.held.CANCELLED": [{"roles": ["work", "nothing"], "most": SELECTED}],
        "insights.lines.MEMBERS": [{"id": there.ids("body")[0], "most": SELECTED}],
        "insights.lines.AHEAD_OF_LOCK": [line],
        "insights.lines.BEHIND": [line],
        "insights.lines.AHEAD_IN_ACCOUNT": [line],
        "insights.lines.OTHERS_FIRST": [
            work | {"account": account, "cursor": cursor, "level": level} | slots
            for account, cursor, level in (("deep", "", 0), ("deep", "", 1000), ("q2", "m5", 0), ("q2", "z", 3.5))
        ],
        "insights.attempts.CHILDREN": [{"id": lone, "most": SELECTED}],
        "insights.attempts.TRACEBACK": [{"id": failed[0]}],
        "insights.condition.SHUT": [{"counted": SELECTED, "most": SELECTED, "looks_at": SELECTED}],
        "insights.condition.RETRIES": [{"late": 60, "most": SELECTED}],
        "insights.situation.STANDING": [{"lane": "work", "account": "q1"}, {"lane": "nothing of it", "account": ""}],
        "insights.situation.HOLDING": [{"lane": "work", "claimed_at": "2026-01-01"}],
        "insights.situation.HEAD": [{"lock_key": "key-1"}],
        "insights.system.PASSES": [work | {"before": None, "most": SELECTED}],
        "insights.trail.LOOKED": [{"before": None, "look": SELECTED}],
        "insights.trail.ENTRIES": [
            {
                "before": None,
                "oldest": there.found("SELECT max(id) - 50 FROM celeriac.audit")[0],
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
        "insights.one_role.IDLE": [work],
        "insights.attempts.RUNS": [work | {"most": 60}],
        "insights.tasks.LOG": [{"id": 1, "most": SELECTED}],
        "insights.tasks.TASK": [{"id": lone}, {"id": failed[0]}],
        "insights.tasks.CALL": [{"id": lone}, {"id": failed[0]}],
        "insights.tasks.ID_OF": [{"task_id": "ready-1"}, {"task_id": "done-1"}],
        "insights.tasks.ROWS_OF": [{"given": ["ready-1", "done-1"], "ids": [lone, failed[0]]}],
        "insights.tasks.EVENTS": [{"id": 1, "most": SELECTED}],
        "insights.tasks.ROLE_OF": [{"id": 1}],
        "insights.one_role.PACE": [work | {"minutes": 10}],
        "insights.system.PASSES_OF_ALL": [{"before": None, "most": SELECTED}],
        "insights.tasks.ACTIVE_UNDER": [{"lock_key": "key-1"}],
        "insights.tasks.UNFINISHED": [{"role": "keyed", "unique_key": "h1"}],
        "insights.tasks.LAST_COMPLETION": [work | {"looks_at": 1}],
        "insights.workflows.UNDER_WAY": [{"after": "", "most": 10, "counted": SELECTED}],
        **pages(),
    }


def pages() -> Mapping[str, list[Given]]:
    """Pages of 60, looking at no more than 60, of all roles and of one."""
    kinds = (
        "lock_key",
        "unique_key",
        "queue",
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
