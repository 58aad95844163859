"""When things run. Edit the list and restart beat.

    batcher(role, every)    the fair pass of a role's batcher, every so many seconds
    sweeping(name, every)   one repair pass over the tables

Left out, a role's batcher runs as often as the role says, a sweep every CELERIAC_SWEEP_INTERVAL_MS.
"""

from celeriac.beat import batcher, sweeping

SCHEDULES = [
    # InstaSite builds: 60 every 30 seconds; QM_INSTASITES_INTERVAL_SECONDS changes the role's own period.
    batcher("instasite_build"),
    # Tasks whose worker fell silent, tickets that Redis lost, lock keys without a leader.
    sweeping("rescue"),
    sweeping("lost_tickets"),
    sweeping("leaderless_locks"),
    # Finished tasks past their role's retention, old events, passes and worker rows.
    sweeping("prune", every=310),
]

__all__ = ["SCHEDULES"]
