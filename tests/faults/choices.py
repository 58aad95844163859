"""What the sequences of moves draw from."""

from __future__ import annotations

from operator import methodcaller

from hypothesis import strategies as st

from tests.faults.lives import ROLES, SCHEDULE, STORES
from tests.faults.operators import TOO_HIGH

NAMES = tuple(role.name for role in ROLES)

#: Places among the tasks, tickets or runs there were.
picks = st.lists(st.integers(0, 8), min_size=1, max_size=3) | st.just([0, 1, 2, 3, 4, 5, 6])
keys = st.sampled_from([None, None, "a", "b"])
accounts = st.sampled_from(["", "acme"])
#: A task to be; a role nobody declared and a priority above its role's are refused.
options = st.fixed_dictionaries(
    {
        "role": st.sampled_from([*NAMES * 5, "nonesuch"]),
        "lock_key": keys,
        "unique_key": keys,
        "account": accounts,
    },
    optional={
        "delay": st.just(60),
        "expires_at": st.sampled_from(["2001-01-01T00:00:00Z", "2101-01-01T00:00:00Z"]),
        "priority": st.sampled_from([0, 50, 50, TOO_HIGH]),
        "task_id": st.sampled_from(["mine", "yours"]),
    },
)
#: What a bulk by filter means.
wanted = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(NAMES),
        "account": accounts,
        "lock_key": st.just("a"),
        "unique_key": st.just("b"),
        "waits_for": st.sampled_from(["time", "lock", "account", "nothing"]),
        "status": st.sampled_from([["pending"], ["failed"], ["cancelled", "failed"], ["claimed", "running"]]),
    },
).filter(bool)

RESYNC, CREATE = "/api/tasks/generate/resync", "/api/tasks/migration/create-resync-tasks"
generating = st.sampled_from(
    [
        methodcaller("generate", RESYNC, {"date": "2025-01-10"}, ("generate", "stores", "resync")),
        methodcaller("generate", RESYNC, {"date": "2125-01-10"}, ("generate", "stores", "resync")),
        methodcaller("generate", "/api/tasks/generate/discovery", {}, ("generate", "stores", "discovery")),
        methodcaller("generate", CREATE, {}, ("migrate", "stores", "create-resync-tasks")),
        methodcaller("generate", CREATE, {"dry_run": True}, ()),
        *(methodcaller("generate", f"/api/tasks/store/{store}/run-now", {}, ("run-now", "store", str(store)))
          for store in STORES),
        methodcaller("run_schedule", SCHEDULE),
    ]
)  # fmt: skip
policies = st.sampled_from(
    [
        *(methodcaller("pause_or_resume_role", role, pause)
          for role in (*NAMES, "nonesuch") for pause in (True, False)),
        *(methodcaller("pause_or_resume_account", "acme", pause) for pause in (True, False)),
        *(methodcaller("set_account", "acme", changes)
          for changes in ({}, {"weight": 0.5}, {"weight": 2.0, "cap": 3}, {"cap": None, "paused": True}, {"cap": 0})),
    ]
)  # fmt: skip
