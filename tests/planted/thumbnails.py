"""Rows of the stale thumbnails' document."""

from __future__ import annotations

from tests.planted.defect import Defect

STALE = "tests/systems/test_stale_thumbnails.py"
BUILT = "tests/systems/test_thumbnails.py"
NEVER_TWICE = f"{STALE}::test_it_never_overlaps_itself"
FOUND = f"{BUILT}::test_published_sites_without_a_thumbnail_are_found_rendered_and_marked"
SCHEDULED = f"{STALE}::test_its_schedule_enqueues_it_unless_it_is_switched_off"

DEFECTS = [
    Defect(
        "failures of other stores are other failures", "celeriac/store/messages.py",
        '(_HEX, "#"), (_DIGITS, "#")):', '(_HEX, "#")):',
        "tests/dashboard/test_failures.py::test_failures_are_told_by_their_problem",
        ("repeated failures, looked at by hand",),
    ),
    Defect(
        "what stays stuck is told after a day", "tasks/watching.py",
        "threshold=0, lasts=2 * HOUR,", "threshold=0, lasts=24 * HOUR,",
        f"{STALE}::test_what_stays_stuck_is_told",
        ("hourly checks catch what is stuck within 3 hours",),
    ),
    Defect(
        "two checks of stale builds at one time", "tasks/stale_thumbnails.py",
        'role="fix_stale_thumbnails", unique_by=ONE,', 'role="fix_stale_thumbnails",', NEVER_TWICE,
        ("the lock `inProgress`", "the bug: `finally` frees the lock at once"),
    ),
    Defect(
        "hooks that nobody switched on", "tasks/triggers.py",
        "    if not ARE_ON:\n", "    if ARE_ON:\n",
        "tests/api/test_scheduled_jobs.py::test_hooks_are_not_there_unless_they_are_switched_on",
        ("`QM_HOOKS`",),
    ),
    Defect(
        "stale builds are looked for at half past", "beat/__init__.py",
        '"fix-stale-thumbnails", "0 * * * *"', '"fix-stale-thumbnails", "30 * * * *"',
        "tests/pure/test_documented_figures.py::test_schedules_run_when_the_documents_say",
        ("every hour, `0 * * * *`",),
    ),
    Defect(
        "a switch that says nothing is on", "celeriac/settings.py",
        "return SWITCH.get(said, default)", "return SWITCH.get(said, True)",
        "tests/pure/test_settings.py::test_a_switch_says_what_it_says_or_stays_as_it_is_by_default",
        ("`index.js`, where flags switch systems",),
    ),
    Defect(
        "a build that is in progress does not say so", "tasks/thumbnails.py",
        '{"thumbnail_build_in_progress": True,', '{"thumbnail_build_in_progress": False,',
        f"{BUILT}::test_others_see_that_a_build_is_in_progress_and_since_when",
        ("`thumbnail_build_in_progress`",),
    ),
    Defect(
        "outside production a build is stuck after 2 hours, too", "tasks/stale_thumbnails.py",
        "< func.now() - timedelta(seconds=seconds))", "< func.now() - timedelta(hours=2))",
        f"{STALE}::test_outside_production_15_minutes_are_enough",
        ("`staleTimestamp`",),
    ),
    Defect(
        "all stuck builds are reset in one transaction", "tasks/stale_thumbnails.py",
        "oldest = found.limit(BATCH).with_for_update", "oldest = found.with_for_update",
        "tests/faults/test_many_stale_thumbnails.py::test_100_000_stuck_builds_are_reset_in_bounded_batches",
        ("`updateMany`, in bulk",),
    ),
    Defect(
        "sites without a thumbnail are found and not enqueued", "tasks/thumbnails.py",
        "for enqueued in build_thumbnail.bulk(calls, session=session))",
        "for enqueued in build_thumbnail.bulk(calls[:0], session=session))", FOUND,
        ("the job `build-thumbnails`",),
    ),
    Defect(
        "agency websites get no thumbnails", "tasks/thumbnails.py",
        '{"agency_website": AgencyWebsite, "instasite": Instasite}', '{"instasite": Instasite}', FOUND,
        ("collection `agency_websites`",),
    ),
    Defect(
        "the schedule of stale builds starts another task", "beat/__init__.py",
        '"0 * * * *", "fix_stale_thumbnails", enabled_by', '"0 * * * *", "enqueue_missing_thumbnails", enabled_by',
        SCHEDULED,
        ("`exports.start`, `cron.schedule`",),
    ),
    Defect(
        "a reset leaves the flag", "tasks/stale_thumbnails.py",
        ".values(NOT_IN_PROGRESS).returning(site.id)",
        ".values(thumbnail_process_started_at=None).returning(site.id)", SCHEDULED,
        ("wait for the next run, see the flag cleared",),
    ),
]  # fmt: skip
