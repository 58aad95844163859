"""What a fleet would come to, in virtual time: the same decisions as the passes', and nothing that sleeps.

day         a made-up day: many accounts, few of them large, busy hours, one that is noisy
replay      a role's own history as arrivals, and how far off its replay is
backlog     what Postgres holds of a role: who is ready, who holds what; one pass
turns       accounts with something ready, in rotation order
locks       lock keys: one task at a time
fleet       the events: arrivals, kicks, tickets, workers, beat
fifo        the same arrivals, first come, first served
rounds      whether the promise of fairness held
waits       how long tasks waited, in all and by account
report      all of it together
"""
