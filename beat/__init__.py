"""When things run. Edit the list and restart beat; what an operator changed over the API or in SQL stays as it is.

    batcher(role, every)                        the fair pass of a role's batcher
    sweeping(name, every)                       one repair pass over the tables
    enqueuing(name, expression, role, kwargs)   a task

`every` and expressions are seconds (`30`) or texts: `@hourly`, `@every 1h30m`, `*/10 * * * *`, or with the second first
`*/30 * * * * *` (docs/expressions.md). `enqueuing` also takes `timezone`, `priority`, `misfire` (`skip`, `once`, `all`)
with `misfire_grace`, `overlap` (`skip`, `allow`) and `enabled_by`, the variable that switches it (docs/schedules.md).

Left out, a role's batcher runs as often as the role says, a sweep every CELERIAC_SWEEP_INTERVAL_MS. Each one's own
variable changes it without an edit: CELERIAC_SCHEDULE_SWEEP_RESCUE="@every 10s", CELERIAC_SCHEDULE_SWEEP_AGING=off.
"""

import os

from celeriac.schedules import batcher, enqueuing, sweeping

#: Menu platforms whose stores are looked for: that of web pages only where somebody says where these are.
PLATFORMS = ["dutchie", *(["webmenus"] if os.environ.get("WEBMENUS_BASE_URL") else [])]

SCHEDULES = [
    # -- InstaSites ----------------------------------------------------------------------------------------------------
    # Builds: 60 every 30 seconds; QM_INSTASITES_INTERVAL_SECONDS changes the role's own period.
    batcher("instasite_build"),
    # -- Thumbnails ----------------------------------------------------------------------------------------------------
    # Published sites without one; builds that began long ago and never ended are freed, to be found again.
    enqueuing(
        "missing-thumbnails", "*/5 * * * *", "enqueue_missing_thumbnails", enabled_by="QM_SITES_BUILD_THUMBNAILS"
    ),
    enqueuing("fix-stale-thumbnails", "0 * * * *", "fix_stale_thumbnails", enabled_by="QM_SITES_FIX_STALE_THUMBNAILS"),
    # Pictures nobody refers to any more, as far as their builds did not see to them.
    enqueuing("old-thumbnails", "0 4 * * 0", "find_old_thumbnails", enabled_by="QM_SITES_BUILD_THUMBNAILS"),
    # -- Stores --------------------------------------------------------------------------------------------------------
    # Each store is resynced once in four hours; new ones are found, and the analytics refreshed, once a day.
    enqueuing("resyncs", "0 */4 * * *", "generate_resync", enabled_by="STORES"),
    *(
        enqueuing(
            f"store discovery {platform}", "0 3 * * *", "store_discovery", {"platform": platform}, enabled_by="STORES"
        )
        for platform in PLATFORMS
    ),
    enqueuing("analytics", "0 5 * * *", "analytics_refresh", enabled_by="STORES"),
    # -- Subreddits ----------------------------------------------------------------------------------------------------
    # Those Reddit has not told of for STALE_DAYS, in the background.
    enqueuing("stale subreddits", "0 */6 * * *", "enqueue_stale_subreddits"),
    # -- The engine's sweeps -------------------------------------------------------------------------------------------
    # Tasks whose worker fell silent, tickets that Redis lost, lock keys without a head.
    sweeping("rescue"),
    sweeping("lost_tickets"),
    sweeping("hand_over"),
    # Delayed and retrying tasks whose time has come; workers see to it as well, within POLL_INTERVAL_MS.
    sweeping("promote", every=5),
    # What has waited for an hour gains 10 points of priority, and 10 more every five minutes: see CELERIAC_AGING_...
    sweeping("aging", every="*/5 * * * *"),
    # Finished tasks past their role's retention, old events, passes and worker rows.
    sweeping("prune", every=310),
]

#: What may be triggered over HTTP (`POST /api/trigger/<path>`, only with QM_HOOKS=true): path → schedule.
HOOKS = {
    "instasites/build": "batcher instasite_build",
    "sites/buildThumbnails": "missing-thumbnails",
    "sites/fixStaleThumbnails": "fix-stale-thumbnails",
}

__all__ = ["HOOKS", "SCHEDULES"]
