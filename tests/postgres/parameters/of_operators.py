"""What operators' statements are asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.postgres.parameters.selected import SELECTED, Given, Selected


def of_operators(there: Selected) -> Mapping[str, list[Given]]:
    by = {"by": "", "why": ""}
    accounts, running, failed, ready = there.accounts, there.running, there.failed, there.ready
    letter, task_ids = there.letter, there.task_ids
    lone = ready[0]
    return {
        "operate.edit.CALL": [{"id": lone}],
        "operate.edit.EDIT": [{"id": lone, "was": "{}", "kwargs": '{"n": 1}', "by": "x", "why": "", "hidden": "x"}],
        "operate.move.CALLS": [{"ids": some, "role": "work"} for some in (ready, there.ids("next"))],
        "operate.move.MOVE": [by | {"ids": some, "role": "other"} for some in (ready, there.ids("next"))],
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
            by | {"wanted": json.dumps([{"id": i, "priority": 9} for i in some])} for some in (ready, there.ids("next"))
        ],
        # Ten each: it looks in every room for each of them, a level deeper in each of the larger indexes.
        "operate.steer.HOLD": [
            {"ids": some[:10]} for some in (ready, running, there.ids("next"), there.ids("resumed"), failed)
        ],
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
    }
