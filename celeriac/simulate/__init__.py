"""Simulation of a fleet in virtual time: it decides as the passes do, and nothing sleeps.

day         a made-up day: many accounts, few of them large, busy hours, one that is noisy
replay      history as arrivals, roles that shared processes together, and how far off that is
machinery   what history shows of the processes that ran it
backlog     what Postgres holds of a role: who is ready, who holds what; one pass
turns       accounts with something ready, in rotation order
locks       lock keys: one task at a time
line        a role in the fleet: its backlog, its passes, its pace
queues      tickets on their way to a process
fleet       the events: arrivals, kicks, tickets, workers, looks, beat
fifo        the same arrivals, first come, first served
rounds      whether the promise of fairness held
waits       how long tasks waited, in all and by account
report      all of it together
"""
