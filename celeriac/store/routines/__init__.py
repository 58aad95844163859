"""What lives in the database beside the tables: for the verbs, and for whoever has psql and nothing else."""

from celeriac.store.routines import capacity, enqueue, locks, release, schedules

#: In the order in which they need one another.
ROUTINES = (*locks.ROUTINES, *schedules.ROUTINES, *enqueue.ROUTINES, *release.ROUTINES, *capacity.ROUTINES)
