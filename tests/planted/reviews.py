"""Rows of the Queue Master's review."""

from __future__ import annotations

from tests.planted.defect import Defect

REVIEW = "tests/postgres/test_review.py"

DEFECTS = [
    Defect(
        "a window is refilled once it is empty", "celeriac/dispatch/room.py",
        "(SELECT (tasks < size.below OR", "(SELECT (tasks < 1 OR",
        "tests/postgres/test_passes.py::test_a_prompt_role_is_refilled_once_a_quarter_of_its_window_is_free",
        ("the database is asked for more as jobs complete",),
    ),
    Defect(
        "a review leaves no state", "celeriac/repair/review.py",
        "FROM celeriac.roles r ORDER BY r.role\n", "FROM celeriac.roles r WHERE false ORDER BY r.role\n",
        "tests/postgres/commands/test_insights.py::test_the_state_that_the_last_review_left_is_told",
        ("the State Document",),
    ),
    Defect(
        "waiting jobs are claimed ones", "celeriac/store/states.py",
        '"waiting": (PENDING,),', '"waiting": (CLAIMED,),',
        "tests/pure/test_documented_figures.py::test_the_documents_words_for_a_status_mean_ours",
        ("status waiting",),
    ),
    Defect(
        "a review removes nothing", "celeriac/repair/review.py",
        "dropped, removed = prune_by_role(app.database, app.settings)", "dropped, removed = 0, rescued - rescued",
        f"{REVIEW}::test_a_review_rescues_promotes_removes_and_leaves_each_queue_s_state",
        ("the role Queue Master",),
    ),
    Defect(
        "what failed of a role that keeps nothing stays", "celeriac/store/routines/history.sql",
        "WHERE role = of_role AND definition -> 'keep' = '0')", "WHERE role = of_role AND definition -> 'keep' = '-1')",
        "tests/postgres/test_keep.py::test_a_finished_task_goes_at_once_or_stays_as_its_role_says",
        ("`removeFinishedJobs: true`: at once",),
    ),
    Defect(
        "one Queue Master stops the others", "celeriac/repair/review.py",
        "ON CONFLICT (role) DO UPDATE\nSET state = excluded.state, reviewed_at = excluded.reviewed_at, "
        "reviewed_by = excluded.reviewed_by,\n    found = excluded.found\n", "",
        f"{REVIEW}::test_two_masters_at_once_do_each_thing_once",
        ("several Queue Masters beside each other",),
    ),
    Defect(
        "what a dead process ran is nobody's", "celeriac/repair/rescue.py",
        "tokens = release.stale(connection, TICKETS, minutes)", "tokens = release.stale(connection, 0, minutes)",
        "tests/end_to_end/test_faults.py::test_a_killed_worker_loses_nothing",
        ("an orphaned job: its process crashed or hangs",),
    ),
]  # fmt: skip
